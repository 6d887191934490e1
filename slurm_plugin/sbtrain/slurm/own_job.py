"""The job whose batch script this process is: found once, when an attempt begins, and from
then on the only job that the attempt can ask about or requeue.

sbatch hands on the environment that it is called in, and Slurm sets in it only what applies to
the new job: SLURM_ARRAY_* and SLURM_RESTART_COUNT may be those of a job around it, or the
user's. SLURM_JOB_ID, SLURM_JOB_NODELIST and SLURM_TASK_PID are set for every batch script. So
the id is theirs, and all else is what Slurm itself says of that id.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from sbtrain.slurm.client import JobInfo, JobStart, SlurmClient
from sbtrain.slurm.states import JobState
from sbtrain.slurm.token import token_of
from sbtrain_jobs.ending.job_control import EndCause, WayBack
from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.hostlist import expand
from sbtrain_jobs.record.ledger import AttemptRecord, attempts, read_ledger
from sbtrain_jobs.run_folder import RunFolder
from sbtrain_jobs.slurm_job import SlurmJob
from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.request import Plan
from sbtrain_perf.wording import count

# In these a job's processes may be there.
_ALIVE = frozenset(
    {
        JobState.RUNNING,
        JobState.SUSPENDED,
        JobState.CONFIGURING,
        JobState.COMPLETING,
        JobState.RESIZING,
        JobState.SIGNALING,
        JobState.STOPPED,
        JobState.UNKNOWN,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnJobControl:
    """JobControl of one job, which answers for no other."""

    client: SlurmClient
    job: SlurmJob

    def end_cause(self, job_id: str) -> EndCause:
        start = JobStart(
            restarts=self.job.restart_count, nodes=tuple(expand(self.job.node_list))
        )
        return self.client.end_cause(self._own(job_id), start)

    def requeue(self, job_id: str) -> None:
        self.client.requeue(self._own(job_id))

    def way_back(self) -> WayBack:
        return self.client.way_back()

    def binds_cpus(self) -> bool:
        return self.client.config().binds_cpus

    def forbid_requeue(self, job_id: str) -> None:
        self.client.forbid_requeue(self._own(job_id))

    def awaited(self, job_id: str) -> bool:
        return self.client.awaited(self._own(job_id))

    def _own(self, job_id: str) -> str:
        if job_id != self.job.job_id:
            raise ValueError(f"job {job_id} is not this run's, which is job {self.job.job_id}")
        return job_id


def is_batch_script(environ: Mapping[str, str]) -> bool:
    """Whether Slurm started this very process, and not as a task of some step."""
    if environ.get("SLURM_TASK_PID") != str(os.getpid()):
        return False
    try:
        parent = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
    except OSError:
        parent = b""
    return re.match(rb"slurmstepd: \[\d+\.\d", parent) is None  # [7.0], and not [7.batch]


def own_job(
    plan: Plan,
    client: SlurmClient,
    environ: Mapping[str, str],
    *,
    batch_script: bool,
    now_s: float,
    warn: Callable[[str], None],
) -> SlurmJob:
    """The job that this process, with this environment, is the batch script of.

    Where Slurm does not answer, only what cannot be another job's is believed: an array
    where the plan asked for one, as many restarts as the run's ledger has attempts.

    Args:
        batch_script: whether Slurm started it as one; see is_batch_script. Where it did not,
            as in a container, the job must have been submitted for the run.

    Raises:
        LaunchError: it is the batch script of no job, or of one with fewer nodes than the
            plan, or another job runs the plan now.
    """
    number = environ.get("SLURM_JOB_ID", "")
    if not number.isdecimal():
        raise LaunchError(
            "this is not a Slurm job: SLURM_JOB_ID is not set",
            hint="submit with sbtrain; the job script starts this command",
        )
    node_list = environ.get("SLURM_JOB_NODELIST", "")
    nodes = expand(node_list)
    shown: JobInfo | None = None
    try:
        found = client.jobs_by_id([number])  # of the first task of an array, all its tasks
        shown = next((one for one in found if one.number == int(number)), None)
        silence = f"it knows no job {number}"
    except SbtrainError as error:
        silence = error.message
    ours = shown is not None and token_of(shown) == plan.run_id
    if not batch_script and not ours:
        raise LaunchError(
            f"this is not the batch script of job {number}, and nothing says that the job was "
            f"submitted for the run {plan.run_id}",
            hint=f"submit the run's job script: sbatch {RunFolder.of(plan).job_script}",
        )
    if len(nodes) < plan.nodes:
        raise LaunchError(
            f"the job has {count(len(nodes), 'node')} ({node_list or 'none'}), "
            f"the plan needs {plan.nodes}",
            hint="do not change --nodes between planning and submission",
        )
    if shown is None:
        warn(f"Slurm does not say how this job stands: {silence}")
    array, task = _array(shown, plan, environ)
    job_id = f"{array}_{task}" if task else number
    _check_alone(plan, client, task, job_id)
    return SlurmJob(
        job_id=job_id,
        array_task=task,
        restart_count=min(
            _restarts_said(environ),
            _attempts(plan, task, job_id) if shown is None else shown.restarts,
        ),
        nodes=tuple(nodes[: plan.nodes]),
        node_list=node_list,
        started_s=(shown.start_time_s if shown else None) or now_s,
        down=_down(plan, client, task),
    )


def _array(shown: JobInfo | None, plan: Plan, environ: Mapping[str, str]) -> tuple[object, str]:
    """The array and the number of its task that the job is; an empty task for no array."""
    if shown is not None:
        return shown.array_job_id, shown.array_tasks
    if any(word.startswith("--array=") for word in plan.sbatch_options):
        task = environ.get("SLURM_ARRAY_TASK_ID", "")
        return environ.get("SLURM_ARRAY_JOB_ID"), task
    return None, ""


def _restarts_said(environ: Mapping[str, str]) -> int:
    """Exact where Slurm has restarted the job; else it may be another job's, and too high.
    What Slurm shows is too high where it ends this very attempt already."""
    said = environ.get("SLURM_RESTART_COUNT", "")
    return int(said) if said.isdecimal() else 0


def _attempts(plan: Plan, task: str, job_id: str) -> int:
    """How many attempts of this run the job has made, as far as they got to say so."""
    return sum(one.job_id == job_id for one in _earlier(plan, task))


def _earlier(plan: Plan, task: str) -> tuple[AttemptRecord, ...]:
    folder = RunFolder.of(plan).task(task) if task else RunFolder.of(plan)
    return attempts(read_ledger(folder.ledger))


def _down(plan: Plan, client: SlurmClient, task: str) -> tuple[str, ...]:
    """Nodes of attempts that left no end which Slurm has lost; none where it does not say."""
    left = [one.nodes for one in _earlier(plan, task) if not one.ended_at]
    if not left:
        return ()
    try:
        names = set(expand(",".join(left)))
        return tuple(node.name for node in client.nodes() if node.lost and node.name in names)
    except SbtrainError:
        return ()


def _check_alone(plan: Plan, client: SlurmClient, task: str, job_id: str) -> None:
    """Two jobs would train on the same checkpoints: an attempt of another one that left no
    end must be over, by Slurm's word."""
    left = {one.job_id for one in _earlier(plan, task) if not one.ended_at} - {job_id, ""}
    if not left:
        return
    try:
        found = client.jobs_by_id(sorted(left))
    except SbtrainError as error:
        raise LaunchError(
            f"whether job {min(left)} still runs {plan.run_id} cannot be seen: {error.message}",
            hint="submit again when Slurm answers",
        ) from error
    for one in found:
        if one.job_id in left and one.state in _ALIVE:
            raise LaunchError(
                f"job {one.job_id} runs {plan.run_id} now ({one.state_text.lower()}): two jobs "
                "would write the same checkpoints",
                hint=f"wait for it, or end it: scancel {one.job_id}; a run of its own is what "
                "sbtrain submits",
            )
