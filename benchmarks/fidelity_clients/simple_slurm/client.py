import os
import time

from simple_slurm import Slurm

job = Slurm(array=range(1, 3), job_name="n", output="out-%a", time="00:05:00")
job.add_cmd("echo first $SLURM_ARRAY_TASK_ID")
print(type(job.sbatch("echo last")).__name__)


def said(task):
    name = f"out-{task}"
    return open(name).read() if os.path.exists(name) else ""


while not all("last" in said(task) for task in (1, 2)):
    time.sleep(0.2)
print(said(1), said(2))
