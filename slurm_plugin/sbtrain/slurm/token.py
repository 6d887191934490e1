"""The mark in a job's comment by which a submission whose answer was lost is found again,
and the care that one submission never becomes two jobs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sbtrain.errors import SlurmError, SlurmTimeoutError, SlurmUnparsableError
from sbtrain.slurm.client import JobInfo, Submission, Submitted
from sbtrain.slurm.refusals import may_have_arrived

_MARK = re.compile(r"(?:^|(?<= ))\[sbtrain:([A-Za-z0-9._-]+)\]$")


def marked_comment(submission: Submission) -> str:
    """What goes into --comment: the user's own comment, then the mark."""
    mark = f"[sbtrain:{submission.token}]" if submission.token else ""
    return f"{submission.comment or ''} {mark}".strip()


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


class Queue(Protocol):
    """What of SlurmClient the search for a job needs."""

    def find_by_token(self, token: str) -> tuple[JobInfo, ...]: ...

    def cancel(self, job_id: str) -> None: ...


class LostAnswers:
    """Submits, and if the answer is lost, finds the job before it tries again."""

    def __init__(
        self,
        queue: Queue,
        *,
        send: Callable[[Submission], Submitted],
        patience: Patience | None,
        now: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._queue = queue
        self._send = send
        self._patience = patience or Patience()
        self._now = now
        self._sleep = sleep

    def submit(self, submission: Submission) -> Submitted:
        """One job, however often it has to be sent.

        Raises:
            SlurmTimeoutError: Slurm was not reached, so that there is no job; or, and then
                the message says so, it never told whether there is one.
            SlurmUnparsableError: sbatch printed no job id, and no job has the token.
        """
        deadline_s = self._now() + self._patience.give_up_s
        lost: SlurmError | None = None
        while True:
            try:
                submitted = self._send(submission)
            except (SlurmTimeoutError, SlurmUnparsableError) as error:
                if not submission.token or not (lost or may_have_arrived(error)):
                    raise
                lost = lost or error
            else:
                return submitted if lost is None else self._only_one(submitted, submission)
            job = self._look(submission.token, deadline_s)
            if job is not None:
                said = f"{lost.stderr}the job was accepted all the same: {job.submission_id}\n"
                return Submitted(job_id=job.submission_id, messages=said, found_again=True)
            if isinstance(lost, SlurmUnparsableError):
                raise lost
            if self._now() >= deadline_s:
                raise SlurmTimeoutError(
                    "Slurm did not say whether it took the job, and does not answer",
                    hint=f"before you submit again, look for '[sbtrain:{submission.token}]' "
                    "in the comments that 'squeue --me -O JobID,Comment:200' shows",
                    argv=lost.argv,
                    stderr=lost.stderr,
                ) from lost

    def _look(self, token: str, deadline_s: float) -> JobInfo | None:
        """The oldest job with the token; None once Slurm surely has none, or time is up."""
        unknown_since_s: float | None = None
        while self._now() < deadline_s:
            try:
                jobs = self._queue.find_by_token(token)
            except SlurmTimeoutError:
                unknown_since_s = None
            else:
                if jobs:
                    return min(jobs, key=lambda job: job.number)
                if unknown_since_s is None:
                    unknown_since_s = self._now()
                elif self._now() - unknown_since_s >= self._patience.settle_s:
                    return None
            self._sleep(self._patience.look_s)
        return None

    def _only_one(self, submitted: Submitted, submission: Submission) -> Submitted:
        """After a second submission: if the first turns up now, keep it, end the second."""
        try:
            jobs = self._queue.find_by_token(submission.token)
            ids = {int(job.submission_id) for job in jobs} | {int(submitted.job_id)}
            for second in sorted(ids)[1:]:
                self._queue.cancel(str(second))
        except SlurmTimeoutError:
            return submitted  # this one is known to be there
        return dataclasses.replace(submitted, job_id=str(min(ids)))
