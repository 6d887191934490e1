"""What the jobs of this folder do."""

import os
import time

import submitit


def add(a, b):
    return a + b


def fail():
    raise ValueError("on purpose")


def ranks():
    here = submitit.JobEnvironment()
    return here.global_rank, here.num_tasks, here.local_rank, here.num_nodes


class Counts:
    """Ends in its second life."""

    def __init__(self):
        self.lives = 0

    def __call__(self, flag):
        self.lives += 1
        with open(flag, "a") as file:
            file.write("x")
        while os.path.getsize(flag) < 2:
            time.sleep(0.2)
        return self.lives

    def checkpoint(self, flag):
        return submitit.helpers.DelayedSubmission(self, flag)


def executor(**parameters):
    made = submitit.AutoExecutor(folder="log", cluster="slurm")
    made.update_parameters(slurm_time=5, **parameters)
    return made
