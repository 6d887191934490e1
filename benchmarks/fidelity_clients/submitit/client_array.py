from functions import add, executor

jobs = executor(slurm_array_parallelism=2).map_array(add, [1, 2, 3], [4, 5, 6])
print([job.result() for job in jobs])
