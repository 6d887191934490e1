#!/bin/bash
# Written by sbtrain for run digits-20261130-000000-abcd; plan.json beside it says the rest.
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH -p spot --job-name="my run"  # mine
#SBATCH --signal=B:USR2@300
#SBATCH --no-requeue
#SBATCH --output=%x-%j.log --open-mode=truncate

# Until the supervisor listens, a signal must not end the job.
trap '' USR1
export SBTRAIN_SCRIPT_DIR=/home/ada
exec /opt/sbtrain/bin/python3 -P -m sbtrain.commands.batch /shared/runs/digits-20261130-000000-abcd/plan.json
