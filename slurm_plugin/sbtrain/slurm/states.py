"""The states of a job, by Slurm's words."""

from __future__ import annotations

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


def read_state(text: str) -> JobState:
    """The state by Slurm's words, such as "CANCELLED by 1000": the first by precedence where
    a "+" joins several."""
    states = {_state(word) for word in text.split("+")}
    return next(state for state in JobState if state in states)


def _state(word: str) -> JobState:
    parts = word.split()
    try:
        return JobState(parts[0].lower())
    except (IndexError, ValueError):
        return JobState.UNKNOWN
