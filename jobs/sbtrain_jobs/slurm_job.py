"""The Slurm job that this attempt runs in: its id, its nodes, how often it was requeued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.hostlist import expand
from sbtrain_perf.request import Plan
from sbtrain_perf.wording import count


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """job_id: as requeue takes it. started_s: Unix time at which Slurm started the job."""

    job_id: str
    restart_count: int
    nodes: tuple[str, ...]
    node_list: str
    started_s: float


def slurm_job_from(plan: Plan, environ: Mapping[str, str], *, now_s: float) -> SlurmJob:
    """Raises LaunchError outside a Slurm job, or in one with fewer nodes than the plan."""
    job_id = requeue_id(environ)
    if not job_id:
        raise LaunchError(
            "this is not a Slurm job: SLURM_JOB_ID is not set",
            hint="submit with sbtrain; the job script starts this command",
        )
    node_list = environ.get("SLURM_JOB_NODELIST", "")
    nodes = expand(node_list)
    if len(nodes) < plan.nodes:
        raise LaunchError(
            f"the job has {count(len(nodes), 'node')} ({node_list or 'none'}), "
            f"the plan needs {plan.nodes}",
            hint="do not change --nodes between planning and submission",
        )
    return SlurmJob(
        job_id=job_id,
        restart_count=_whole(environ.get("SLURM_RESTART_COUNT"), fallback=0),
        nodes=nodes[: plan.nodes],
        node_list=node_list,
        started_s=float(_whole(environ.get("SLURM_JOB_START_TIME"), fallback=int(now_s))),
    )


def requeue_id(environ: Mapping[str, str]) -> str:
    """The job to requeue: N, or Array_Task, so that an array's other tasks go on."""
    if "SLURM_ARRAY_JOB_ID" in environ:
        return f"{environ['SLURM_ARRAY_JOB_ID']}_{environ['SLURM_ARRAY_TASK_ID']}"
    return environ.get("SLURM_JOB_ID", "")


def _whole(text: str | None, *, fallback: int) -> int:
    return int(text) if text and text.isdecimal() else fallback
