#!/bin/bash
#SBATCH -N2 --ntasks-per-node=1 -o out -t 5
export GLOO_SOCKET_IFNAME=lo
srun torchrun --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d \
    --rdzv-endpoint=127.0.0.1:29511 --rdzv-id=$SLURM_JOB_ID train.py
