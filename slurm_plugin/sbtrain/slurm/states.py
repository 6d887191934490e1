"""The states of a job, by Slurm's words."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class JobState(StrEnum):
    """One word for a job, in the order of precedence in which Slurm itself names it."""

    COMPLETING = "completing"
    STAGE_OUT = "stage_out"
    CONFIGURING = "configuring"
    RESIZING = "resizing"
    REQUEUED = "requeued"
    REQUEUE_FED = "requeue_fed"
    REQUEUE_HOLD = "requeue_hold"
    SPECIAL_EXIT = "special_exit"
    STOPPED = "stopped"
    REVOKED = "revoked"
    RESV_DEL_HOLD = "resv_del_hold"
    SIGNALING = "signaling"
    PENDING = "pending"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"
    TIMEOUT = "timeout"
    NODE_FAIL = "node_fail"
    PREEMPTED = "preempted"
    BOOT_FAIL = "boot_fail"
    DEADLINE = "deadline"
    OUT_OF_MEMORY = "out_of_memory"
    UNKNOWN = "unknown"  # a word of a Slurm that this sbtrain does not know


OVER = frozenset(
    {
        JobState.COMPLETED,
        JobState.CANCELLED,
        JobState.FAILED,
        JobState.TIMEOUT,
        JobState.DEADLINE,
        JobState.OUT_OF_MEMORY,
        JobState.REVOKED,
    }
)
MAY_RESTART = frozenset(
    {JobState.PREEMPTED, JobState.NODE_FAIL, JobState.BOOT_FAIL, JobState.REQUEUED}
)
_FLAGS = frozenset(list(JobState)[: list(JobState).index(JobState.PENDING)])


def read_state(words: Iterable[str]) -> tuple[JobState, JobState | None]:
    """The state that Slurm's words say together, and the state below COMPLETING if one of
    them tells. "CANCELLED by 1000" is one word here."""
    states = {_state(word) for word in words}
    known = [state for state in JobState if state in states]
    if not known:
        return JobState.UNKNOWN, None
    below = [state for state in known if state not in _FLAGS and state != JobState.UNKNOWN]
    first = known[0]
    return first, below[0] if first == JobState.COMPLETING and below else None


def _state(word: str) -> JobState:
    parts = word.split()
    try:
        return JobState(parts[0].lower())
    except (IndexError, ValueError):
        return JobState.UNKNOWN
