"""What is known when an attempt is over."""

from __future__ import annotations

from dataclasses import dataclass

from sbtrain_jobs.ending.job_control import EndCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The first thing that went wrong. code: an exit status, negative for a signal."""

    code: int
    words: str
    hint: str = ""
    first: bool = True  # before any notice


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptEnd:
    """Of a script that started its ranks itself. code: its exit status, negative for a signal;
    None where it has not begun, or not ended."""

    code: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What is known when all processes of the attempt have ended."""

    finished: bool
    noticed: bool
    cause: EndCause  # Slurm's last word
    first_cause: EndCause  # the first that it named: it forgets a preemption when it requeues
    failure: Failure | None
    lost_nodes: tuple[str, ...]
    saved: str  # what is saved of it, in words; empty where nobody knows
    steps_done: bool = False  # all, and their state is saved; the script may still run
    shortfall: str = ""  # planned steps that a finished script has not done, in words
    stuck: str = ""  # it kept nothing new, in words
    requeue_asked: bool = False  # by the script itself, which has saved
    script: ScriptEnd | None = None  # where that ran, and no trainers of ours
