#!/bin/bash
# Written by sbtrain for run digits-20261130-000000-abcd; plan.json beside it says the rest.
#SBATCH --partition=spot
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --gres=gpu:2
#SBATCH --no-requeue
#SBATCH --job-name=train_digits.py

# Until the supervisor listens, a signal must not end the job.
trap '' USR1
export SBTRAIN_SCRIPT_DIR=/home/ada
exec /opt/sbtrain/bin/python3 -P -m sbtrain.commands.batch /shared/runs/digits-20261130-000000-abcd/plan.json
