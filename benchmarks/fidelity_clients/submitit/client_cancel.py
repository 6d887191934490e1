import subprocess
import time

from functions import executor

job = executor().submit(time.sleep, 300)


def state():
    return subprocess.getoutput(f"squeue -h -t all -o %T -j {job.job_id}")


while state() != "RUNNING":
    time.sleep(0.3)
job.cancel()
while state() in ("RUNNING", "COMPLETING"):
    time.sleep(0.3)
print(state())
