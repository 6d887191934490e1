import os
import pathlib
import shutil
import subprocess
import sys

# Its jobs drop SLURM_CONF, by which alone the commands find a private Slurm.
srun = pathlib.Path("bin/srun").absolute()
srun.parent.mkdir()
srun.write_text(
    f'#!/bin/sh\nSLURM_CONF={os.environ["SLURM_CONF"]} exec {shutil.which("srun")} "$@"\n'
)
srun.chmod(0o755)
words = (
    "--executor slurm --jobs 2 --slurm-status-command squeue "
    "--seconds-between-status-checks 1 --slurm-init-seconds-before-status-checks 1"
)
said = subprocess.run(
    [sys.executable, "-m", "snakemake", *words.split()],
    env=os.environ | {"PATH": f"{srun.parent}:{os.environ['PATH']}"},
    capture_output=True,
    text=True,
)
print(said.returncode, open("sum").read() if not said.returncode else said.stderr[-900:])
