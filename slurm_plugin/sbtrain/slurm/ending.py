"""Why a job is being ended, told from what Slurm shows of it while it still runs.

Seen on Slurm 22.05 at the moment the signal arrives (24.11 shows the same fields):

    preempted            RUNNING, PreemptTime set; once the grace is over like "requeued",
                         or with --no-requeue COMPLETING and PreemptTime = EndTime; so at
                         once with PreemptMode=CANCEL where there is no grace
    time limit near      RUNNING, EndTime soon; at the limit COMPLETING, Reason=TimeLimit
    cancelled            COMPLETING, Restarts as before; PreemptTime, if the grace of a
                         preemption was running, stays as it was
    requeued by others   COMPLETING, Restarts one higher, PreemptTime gone
    node lost            as requeued, and a node of the job is down; with --no-requeue
                         Reason=NodeDown; with --no-kill RUNNING on fewer nodes

While a job is COMPLETING its node list shrinks as nodes finish, so a missing node alone
tells nothing: it must be down too.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sbtrain.slurm.client import JobInfo, JobStart, SlurmVersion
from sbtrain.slurm.states import JobState
from sbtrain_jobs.ending.job_control import EndCause, WayBack
from sbtrain_jobs.hostlist import expand

_LIMITS = {"TimeLimit", "DeadLine"}
_EXIT_ENDS_THE_JOB = (22, 5)  # the newest on which this was seen
_EXIT_REQUEUES = (24, 11)  # the oldest on which this was seen


def way_back_of(version: SlurmVersion) -> WayBack:
    """How a job comes back that ends within the grace of its preemption.

    Seen on 22.05: an exit ends it for good, and it must be requeued. On 24.11 and 26.05 Slurm
    requeues it upon any exit, unless the job says Requeue=0; requeued by hand besides, or by
    Slurm at the end of the grace, it runs again, and once more after it has completed.
    Between the two nothing was tried: stay until Slurm ends the job.
    """
    release = (version.year, version.month)
    if release <= _EXIT_ENDS_THE_JOB:
        return "requeue"
    return "exit" if release >= _EXIT_REQUEUES else "wait"


def awaits_success_of(number: str, dependencies: str) -> bool:
    """Whether a job stands in squeue's column of dependencies as one that must end well.

    Only COMPLETED counts for Slurm. What ends within the grace of its preemption is called
    PREEMPTED from 24.11 on, with whatever exit status.
    """
    return re.search(rf"\bafter(?:ok|corr):{number}(?!\d)", dependencies) is not None


def end_cause_of(
    job: JobInfo,
    attempt: JobStart | None,
    *,
    now_s: float,
    limit_warning_s: float,
    any_lost: Callable[[tuple[str, ...]], bool],
    cancels: Callable[[str], bool] = lambda _: False,
) -> EndCause:
    """Read the signs above. A limit within limit_warning_s counts as near.

    Args:
        any_lost: whether one of these nodes is down; asked only where the answer hangs on it.
        cancels: whether a partition ends what it preempts, at once and for good; likewise.
    """
    if job.state in {JobState.CANCELLED, JobState.REVOKED}:
        return "cancelled"
    if job.state == JobState.PREEMPTED:
        return "preempted"
    if job.state == JobState.NODE_FAIL or job.reason == "NodeDown":
        return "node-fail"
    if job.state in {JobState.TIMEOUT, JobState.DEADLINE} or job.reason in _LIMITS:
        return "time-limit"
    missing = _missing(job, attempt)
    if attempt is not None and job.restarts > attempt.restarts:
        return "node-fail" if missing and any_lost(missing) else "requeued"
    if job.state == JobState.COMPLETING:
        if _ended_by_preemption(job, cancels):
            return "preempted"
        return "cancelled" if attempt is not None else "unknown"
    if job.state == JobState.RUNNING:
        if job.preempt_time_s is not None:
            return "preempted"
        if missing and any_lost(missing):
            return "node-fail"
        near = job.end_time_s is not None and job.end_time_s - now_s <= limit_warning_s
        return "time-limit" if near else "none"
    return "unknown"


def _ended_by_preemption(job: JobInfo, cancels: Callable[[str], bool]) -> bool:
    """In the very second of it, and not requeued. With a grace time that is a cancel."""
    if job.preempt_time_s is None or job.end_time_s is None:
        return False
    at_once = job.end_time_s - job.preempt_time_s < 1
    return at_once and (not job.requeue or cancels(job.partition))


def _missing(job: JobInfo, attempt: JobStart | None) -> tuple[str, ...]:
    if attempt is None:
        return ()
    present = set(expand(job.nodes))
    return tuple(node for node in attempt.nodes if node not in present)
