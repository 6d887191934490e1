import os
import time

from functions import Counts, executor

flag = os.path.abspath("flag")
job = executor().submit(Counts(), flag)
while not os.path.exists(flag):
    time.sleep(0.2)
time.sleep(1)
job._interrupt(timeout=False)
print(job.result())
