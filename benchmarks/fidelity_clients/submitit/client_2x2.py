from functions import executor, ranks

print(executor(nodes=2, tasks_per_node=2, cpus_per_task=1).submit(ranks).results())
