#!/opt/sbtrain/bin/python3 -P
# Written by sbtrain for run digits-20261130-000000-abcd; plan.json beside it says the rest.
#SBATCH --partition=spot
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --signal=B:USR1@60
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --job-name=train_digits.py

import sys

from sbtrain.commands.batch import main

sys.exit(main(['/shared/runs/digits-20261130-000000-abcd/plan.json']))
