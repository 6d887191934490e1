"""Where this attempt runs: the job, its nodes, its number, its folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.hostlist import expand
from sbtrain_jobs.supervisor.progress import counted
from sbtrain_perf.codec import plan_to_json
from sbtrain_perf.request import Plan
from sbtrain_staging.publish import publish_bytes


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
            f"the job has {counted(len(nodes), 'node')} ({node_list or 'none'}), "
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


def plan_of_task(plan: Plan, environ: Mapping[str, str]) -> Plan:
    """The plan, or for an array task one with folders of its own: tasks share nothing."""
    task = environ.get("SLURM_ARRAY_TASK_ID", "")
    if not task:
        return plan
    return dataclasses.replace(
        plan,
        run_id=f"{plan.run_id}-{task}",
        run_dir=str(Path(plan.run_dir) / f"task-{task}"),
        checkpoint_dir=str(Path(plan.checkpoint_dir) / f"task-{task}"),
    )


def run_folder(plan: Plan) -> Path:
    """Make the run's folder where it is missing. Raises LaunchError."""
    return _folder(Path(plan.run_dir), plan)


def attempt_folder(plan: Plan, attempt: int) -> Path:
    """Make the attempt's folder. Raises LaunchError."""
    return _folder(Path(plan.run_dir) / "attempts" / str(attempt), plan)


def _folder(folder: Path, plan: Plan) -> Path:
    try:
        # Of the parents that it makes, mkdir itself leaves the mode to the umask.
        for parent in reversed(folder.parents):
            parent.mkdir(exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
    except OSError as error:
        raise _unwritable(plan, error) from error
    return folder


def write_task_plan(plan: Plan) -> str:
    """The plan of an array task as a file of its own; its path. Raises LaunchError."""
    path = Path(plan.run_dir) / "plan.json"
    try:
        run_folder(plan)
        publish_bytes(path, plan_to_json(plan).encode())
    except OSError as error:
        raise _unwritable(plan, error) from error
    return str(path)


def _unwritable(plan: Plan, error: OSError) -> LaunchError:
    return LaunchError(
        f"cannot write the run folder {plan.run_dir}: {error.strerror}",
        hint="it must be on a filesystem that all nodes share, with room left",
    )


def _whole(text: str | None, *, fallback: int) -> int:
    return int(text) if text and text.isdecimal() else fallback
