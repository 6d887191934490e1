"""The mark in a job's comment by which a submission whose answer was lost is found again,
and the care that one submission never becomes two jobs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass

from sbtrain.errors import SlurmError, SlurmTimeoutError, SlurmUnparsableError
from sbtrain.slurm.client import JobInfo, Submission, Submitted
from sbtrain.slurm.refusals import may_have_arrived

_MARK = re.compile(r"(?:^|(?<= ))\[sbtrain:([A-Za-z0-9._-]+)\]$")


def marked_comment(submission: Submission) -> str:
    """What goes into --comment: the user's own comment, then the mark."""
    mark = f"[sbtrain:{submission.token}]" if submission.token else ""
    return f"{submission.comment} {mark}".strip()


def split_comment(comment: str) -> tuple[str, str]:
    """The user's own comment and the token of a job's comment, each "" where absent."""
    found = _MARK.search(comment.rstrip())
    return (comment[: found.start()].rstrip(), found[1]) if found else (comment, "")


def token_of(job: JobInfo) -> str:
    return split_comment(job.comment)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How a lost answer is dealt with, in seconds.

    Slurm is asked for the job every look_s. It is submitted again only after Slurm has
    answered and does not know it for settle_s: slurmctld works off what it had accepted
    before it answers, so this covers a request that was still on its way. give_up_s bounds
    the whole.
    """

    look_s: float = 2.0
    settle_s: float = 6.0
    give_up_s: float = 180.0


def submit_once(
    submission: Submission,
    *,
    send: Callable[[Submission], Submitted],
    find: Callable[[str], tuple[JobInfo, ...]],
    cancel: Callable[[str], None],
    now: Callable[[], float],
    sleep: Callable[[float], None],
    patience: Patience,
) -> Submitted:
    """Submit, and if the answer is lost, find the job before trying again.

    Raises:
        SlurmTimeoutError: Slurm was not reached, so that there is no job; or, and then the
            message says so, it never told whether there is one.
        SlurmUnparsableError: no job id in what sbatch printed, and no job with the token.
    """
    deadline = now() + patience.give_up_s
    lost: SlurmError | None = None
    while True:
        try:
            submitted = send(submission)
        except (SlurmTimeoutError, SlurmUnparsableError) as error:
            if not submission.token or not (lost or may_have_arrived(error)):
                raise
            lost = lost or error
        else:
            if lost is None:
                return submitted
            return _only_one(submitted, find(submission.token), cancel)
        job = _look(submission.token, find, now, sleep, patience, deadline)
        if job is not None:
            messages = f"{lost.stderr}the job was accepted all the same: {job.submission_id}\n"
            return Submitted(job_id=job.submission_id, messages=messages, found_again=True)
        if isinstance(lost, SlurmUnparsableError):
            raise lost
        if now() >= deadline:
            raise SlurmTimeoutError(
                "Slurm did not say whether it took the job, and does not answer",
                hint=f"before you submit again, look for '[sbtrain:{submission.token}]' "
                "in the comments that 'squeue --me -O JobID,Comment:200' shows",
                argv=lost.argv,
                stderr=lost.stderr,
            ) from lost


def _look(
    token: str,
    find: Callable[[str], tuple[JobInfo, ...]],
    now: Callable[[], float],
    sleep: Callable[[float], None],
    patience: Patience,
    deadline: float,
) -> JobInfo | None:
    """The oldest job with the token; None once Slurm surely has none, or time is up."""
    unknown_since: float | None = None
    while now() < deadline:
        try:
            jobs = find(token)
        except SlurmTimeoutError:
            unknown_since = None
        else:
            if jobs:
                return min(jobs, key=lambda job: job.number)
            if unknown_since is None:
                unknown_since = now()
            elif now() - unknown_since >= patience.settle_s:
                return None
        sleep(patience.look_s)
    return None


def _only_one(
    submitted: Submitted, jobs: tuple[JobInfo, ...], cancel: Callable[[str], None]
) -> Submitted:
    """After a second submission: if the first turns up now, keep it and end the second."""
    ids = {int(job.submission_id) for job in jobs} | {int(submitted.job_id)}
    for second in sorted(ids)[1:]:
        cancel(str(second))
    return dataclasses.replace(submitted, job_id=str(min(ids)))
