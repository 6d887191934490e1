"""What srun would have set for a rank that it had started as a task: what JAX, Lightning,
Accelerate and submitit take world, rank and local rank from."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

from sbtrain_jobs.layouts.ranks import local_workers
from sbtrain_perf.request import Plan


def task_environment(plan: Plan, rank: int, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the agent's task, made that of a worker among workers.

    Beside parameter servers it stays what it is: an `srun` that a trainer calls starts as many
    tasks as it says.
    """
    if plan.layout != "allreduce":
        return dict(environ)
    # srun, called by a trainer, takes but one of NTASKS_PER_NODE and NTASKS_PER_GPU.
    kept = {name: value for name, value in environ.items() if name != "SLURM_NTASKS_PER_GPU"}
    return {**kept, **_of_task(plan, rank)}


def _of_task(plan: Plan, rank: int) -> dict[str, str]:
    role = plan.roles[rank]
    local = [worker.index for worker in local_workers(plan, role.node)]
    by_node = [len(local_workers(plan, node)) for node in range(plan.nodes)]
    tasks, per_node = str(sum(by_node)), _compressed(by_node)
    return {
        "SLURM_PROCID": str(role.index),
        "SLURM_LOCALID": str(local.index(role.index)),
        "SLURM_NODEID": str(role.node),
        "SLURM_GTIDS": ",".join(str(index) for index in local),
        "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks,
        "SLURM_STEP_NUM_TASKS": tasks,
        "SLURM_NTASKS_PER_NODE": str(max(by_node)),
        "SLURM_TASKS_PER_NODE": per_node,
        "SLURM_STEP_TASKS_PER_NODE": per_node,
    }


def _compressed(counts: list[int]) -> str:
    """2(x3),1 for 2, 2, 2, 1."""
    runs = [(count, len(list(run))) for count, run in groupby(counts)]
    return ",".join(str(count) if times == 1 else f"{count}(x{times})" for count, times in runs)
