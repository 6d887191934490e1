#!/bin/bash
#SBATCH -N2 --ntasks-per-node=2 -o out -t 5
export GLOO_SOCKET_IFNAME=lo MASTER_ADDR=127.0.0.1
srun python train.py
