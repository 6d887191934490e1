"""Batch scripts as the pages of clusters show them, of which there is nothing to say."""

from __future__ import annotations

ORDINARY = {
    "serial.sh": """\
#!/bin/bash
#SBATCH --job-name=serial_test    # Job name
#SBATCH --mail-type=END,FAIL      # Mail events
#SBATCH --mail-user=ada@example.org
#SBATCH --ntasks=1                # Run on a single CPU
#SBATCH --mem=1gb                 # Job memory request
#SBATCH --time=00:05:00           # Time limit hrs:min:sec
#SBATCH --output=serial_test_%j.log
pwd; hostname; date

module load python
python3 plot_template.py
date
""",
    "threads.sh": """\
#!/bin/bash -l
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=16
#SBATCH --time=01:00:00
##SBATCH --mail-type=ALL
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
./omp_program
""",
    "mpi.sh": """\
#!/bin/bash
#SBATCH --job-name=mpi_job
#SBATCH --nodes=4
#SBATCH --ntasks=96
#SBATCH --ntasks-per-node=24
#SBATCH --mem-per-cpu=600mb
#SBATCH --output=mpi_test_%j.log
echo "Running on $SLURM_JOB_NODELIST with $SLURM_NTASKS tasks"
module purge; module load gcc openmpi
srun --mpi=pmix ./mpi_program
""",
    "hybrid.sh": """\
#!/bin/bash
#SBATCH -N 2
#SBATCH --ntasks-per-node=4
#SBATCH -c 8
#SBATCH -t 2:00:00
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
export OMP_PLACES=cores
srun --cpu-bind=cores ./hybrid
""",
    "array.sh": """\
#!/bin/bash
#SBATCH --array=0-31%4
#SBATCH --output=logs/array_%A_%a.out
#SBATCH --error=logs/array_%A_%a.err
#SBATCH --time=4:00:00
#SBATCH --mem=4000
INPUT=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" inputs.txt)
./process "$INPUT" > "result.$SLURM_ARRAY_TASK_ID"
""",
    "gpu.sh": """\
#!/bin/bash
#SBATCH --partition=gpu
#SBATCH --gres=gpu:v100:2
#SBATCH --cpus-per-task=10
#SBATCH --time=24:00:00
module load cuda
nvidia-smi
python train.py --epochs 90 --batch-size 256
""",
    "torchrun.sh": """\
#!/bin/bash
#SBATCH --job-name=ddp
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=4
#SBATCH --cpus-per-task=32
nodes=( $( scontrol show hostnames $SLURM_JOB_NODELIST ) )
head_node=${nodes[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address)
srun --cpus-per-task=$SLURM_CPUS_PER_TASK torchrun \\
    --nnodes 4 --nproc_per_node 4 --rdzv_id $RANDOM \\
    --rdzv_backend c10d --rdzv_endpoint $head_node_ip:29500 \\
    multinode.py 50 10
""",
    "trap.sh": """\
#!/bin/bash
#SBATCH --time=12:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append

# catch the SIGUSR1 signal
_resubmit() {
    echo "$(date): job $SLURM_JOB_ID got SIGUSR1, requeueing"
    touch stop.now
    scontrol requeue $SLURM_JOB_ID
}
trap _resubmit SIGUSR1

srun python train.py --resume &
wait
""",
    "lightning.sh": """\
#!/bin/bash -l
# SLURM SUBMIT SCRIPT
#SBATCH --nodes=4
#SBATCH --gres=gpu:8
#SBATCH --ntasks-per-node=8
#SBATCH --mem=0
#SBATCH --time=0-02:00:00
#SBATCH --signal=SIGUSR1@90
source activate $1
export NCCL_DEBUG=INFO
export PYTHONFAULTHANDLER=1
srun python3 train.py
""",
    "scratch.sh": """\
#!/bin/sh
#SBATCH -J stage
#SBATCH -A project
#SBATCH -p normal
#SBATCH -n 1
#SBATCH -t 0-10:00
set -e
WORK=/scratch/$USER/$SLURM_JOB_ID
mkdir -p "$WORK"
cp -r data "$WORK"
cd "$WORK" || exit 1
trap 'rm -rf "$WORK"' EXIT
./simulate < data/input.txt
cp results.dat "$SLURM_SUBMIT_DIR"
""",
    "depend.sh": """\
#!/bin/bash
#SBATCH --dependency=singleton
#SBATCH --job-name=chain
#SBATCH --time=1-00:00:00
if [ ! -f finished ]; then
    sbatch $0
fi
./step
""",
    "container.sh": """\
#!/bin/bash
#SBATCH --gpus=1
#SBATCH --time=60
#SBATCH --mem-per-gpu=32G
apptainer exec --nv --bind /data:/data pytorch.sif python train.py
""",
    "pack.sh": """\
#!/bin/bash
#SBATCH --ntasks=8
#SBATCH --cpus-per-task=2
#SBATCH --time=6:00:00
for i in {1..32}; do
    srun --exact -n1 -c2 --mem=2G ./work.sh $i &
done
wait
""",
    "heredoc.sh": """\
#!/bin/bash
#SBATCH --time=5
for lr in 0.1 0.01; do
sbatch <<EOT
#!/bin/bash
#SBATCH --job-name=lr_$lr
#SBATCH --output=logs/$lr.out
python train.py --lr $lr
EOT
done
""",
    "matlab.sh": """\
#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=12
#SBATCH --exclusive
#SBATCH --licenses=matlab:1
module load matlab/R2023b
matlab -nodisplay -nosplash -r "run('fit.m'); exit"
""",
    "r.R": """\
#!/usr/bin/env Rscript
#SBATCH --ntasks=1
#SBATCH --mem=8G
# Fit the model
fit <- lm(dist ~ speed, data = cars)
print(summary(fit))
""",
    "program.py": '''\
#!/usr/bin/env python3
#SBATCH --nodes=2
#SBATCH --time=30
"""Train a small network.

Submit it with `sbatch program.py`; # SBATCH lines above are read by Slurm.
"""
import os

print(os.environ.get("SLURM_JOB_ID"))
''',
    "tcsh.csh": """\
#!/bin/tcsh -f
#SBATCH -n 16
#SBATCH -t 00:30:00
setenv OMP_NUM_THREADS 1
if ( -e restart ) then
  mpirun -np 16 ./model -restart
else
  mpirun -np 16 ./model
endif
""",
    "ray.sh": """\
#!/bin/bash
#SBATCH --nodes=3
#SBATCH --exclusive
#SBATCH --tasks-per-node=1
#SBATCH --cpus-per-task=4
nodes_array=($(scontrol show hostnames "$SLURM_JOB_NODELIST"))
head_node=${nodes_array[0]}
srun --nodes=1 --ntasks=1 -w "$head_node" --cpus-per-task="${SLURM_CPUS_PER_TASK}" \\
    ray start --head --block &
sleep 10
python -u sample_code.py "$SLURM_CPUS_PER_TASK"
""",
    "commented.sh": """\
#!/bin/bash
#
# --- Resources -------------------------------------------------
# Lines that begin with #SBATCH are read by sbatch; two # switch one off.
#
#SBATCH --partition=debug    # see sinfo
##SBATCH --partition=long
#SBATCH --nodes=1            # number of nodes
#SBATCH --tasks-per-node=1

#SBATCH --time=10

# Body
echo "Hello from $(hostname)"
""",
    "profile.sh": """\
#!/bin/bash
#SBATCH -N 1 -n 4 -t 15
#SBATCH -o %x.%j.out
nsys profile -o report.$SLURM_JOB_ID python train.py
grep -c srun "$0" || true
""",
    "moved.sh": """\
#!/bin/bash
#PBS -N moved
#PBS -l nodes=2:ppn=8
#PBS -l walltime=02:00:00
#PBS -j oe
cd $PBS_O_WORKDIR
mpirun ./model
""",
}
