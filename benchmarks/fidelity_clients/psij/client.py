import pathlib

import psij

executor = psij.JobExecutor.get_instance("slurm")
job = psij.Job(
    psij.JobSpec(
        executable="/bin/sh",
        arguments=["-c", "echo $SLURM_NTASKS; exit $0", "3"],
        stdout_path=pathlib.Path("out").absolute(),
        resources=psij.ResourceSpecV1(node_count=2, processes_per_node=2),
        launcher="srun",
    )
)
executor.submit(job)
status = job.wait()
print(status.state.name, status.exit_code, sorted(open("out").read().split()))
