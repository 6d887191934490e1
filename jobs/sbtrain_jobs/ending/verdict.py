"""What becomes of the job when an attempt is over: a pure function of what is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sbtrain_jobs.ending.job_control import EndCause
from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.wire.messages import EXIT_STOPPED

EXIT_ENDED_BY_NOTICE = 143  # 128 + TERM: stopped as told, and not put back into the queue
DONE_WORDS = "all steps were done and saved; the script did not end by itself"
STUCK_HINT = (
    "see in the trainers' logs what hangs, or give it more --time, or an earlier --signal to "
    "save in"
)

# Causes that explain a failing trainer by themselves: Slurm is taking the nodes away.
TAKEN: tuple[EndCause, ...] = ("preempted", "cancelled", "requeued", "node-fail")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All about an attempt that is over.

    failed_code: exit status of the first trainer, or step of ours, that failed; negative
        when a signal ended it. failed_first: it failed before any notice.
    steps_done: all steps were done and saved, though the script has not ended.
    stuck: the attempt kept nothing new, in words; empty where it did, or nobody knows.
    requeues_left: how often the job may still be put back into the queue.
    """

    finished: bool
    noticed: bool
    cause: EndCause
    failed_code: int | None
    failed_first: bool
    nodes_lost: bool
    resumable: bool
    requeues_left: int
    steps_done: bool = False
    stuck: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """action "wait": Slurm is about to act, or does not answer; ask again in a while.
    cause: as the ledger records it. signal: by which the job is to end, as its script did."""

    action: Literal["end", "requeue", "wait"]
    exit_code: int
    cause: str
    words: str = ""
    signal: int = 0


def judge(facts: Facts) -> Verdict:
    """The verdict; never a requeue of a job that was cancelled, or may have been."""
    if facts.finished:
        return Verdict(action="end", exit_code=0, cause="completed")
    if _is_failure(facts):
        assert facts.failed_code is not None
        return Verdict(action="end", exit_code=exit_status(facts.failed_code), cause="failed")
    if facts.nodes_lost and facts.cause in ("none", "unknown"):
        return Verdict(action="wait", exit_code=EXIT_STOPPED, cause="node-fail")
    if facts.noticed or facts.cause in TAKEN:
        return after_notice(facts)
    return Verdict(
        action="end",
        exit_code=LaunchError.exit_code,
        cause="failed",
        words="error: the attempt ended, and nobody said why",
    )


def after_notice(facts: Facts) -> Verdict:
    """The verdict on an attempt that was told to stop."""
    cause = facts.cause
    if cause == "cancelled":
        return _end(cause, "the job was cancelled: that is final")
    if facts.steps_done and cause != "node-fail":
        return Verdict(action="end", exit_code=0, cause="completed", words=DONE_WORDS)
    if cause in ("requeued", "node-fail"):
        return Verdict(action="end", exit_code=EXIT_STOPPED, cause=cause)
    if facts.stuck and cause == "time-limit":
        return _end("failed", f"error: {facts.stuck}; {STUCK_HINT}")
    if not facts.resumable:
        return _end(
            cause, "the run declares no way to resume, or may not be requeued: it ends here"
        )
    if facts.requeues_left <= 0:
        return _end("requeue-cap", "it was requeued as often as the plan allows")
    if cause == "unknown":
        return Verdict(
            action="wait",
            exit_code=EXIT_STOPPED,
            cause=cause,
            words="Slurm does not say why the job ends; it may have been cancelled",
        )
    return Verdict(action="requeue", exit_code=EXIT_STOPPED, cause=cause)


def exit_status(returncode: int) -> int:
    """An exit status as a shell reports it: 128 + the signal that ended the process."""
    return 128 - returncode if returncode < 0 else returncode


def _is_failure(facts: Facts) -> bool:
    if facts.failed_code is None or facts.cause in TAKEN:
        return False
    if not facts.failed_first:
        return False  # told to stop, and did not do it well
    by_signal = facts.failed_code < 0 or facts.failed_code > 128
    stopped = facts.failed_code == EXIT_STOPPED
    if facts.noticed and (by_signal or stopped):
        return False  # the signal reached the trainer before its notice reached us
    return not facts.nodes_lost


def _end(cause: str, words: str) -> Verdict:
    return Verdict(action="end", exit_code=EXIT_ENDED_BY_NOTICE, cause=cause, words=words)
