"""What an end of a run leaves behind, as values: lines of its ledger, Slurm's record of the
job, rows of the accounting; a Slurm that shows them, and what `sbtrainctl status` says of it.

Job 7 ran on c1 and c2, or was to. Records are as Slurm 22.05 shows them unless it is said.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from fake_slurm import FakeSlurm
from run_folders import BEGAN, make_run, tell
from sbtrain.commands.status import causes
from sbtrain.errors import SlurmTimeoutError
from sbtrain.runs.run_status import RunStatus, overview
from sbtrain.slurm.client import HistoryRow, JobInfo, NoAccounting, NodeInfo
from sbtrain.slurm.states import JobState
from sbtrain_jobs.record.ledger import LedgerEntry

MARK = "[sbtrain:digits-7]"
SUBMITTED_S = datetime.fromisoformat(BEGAN).timestamp()
STARTED_S, ENDED_S, AGAIN_S = SUBMITTED_S + 10, SUBMITTED_S + 300, SUBMITTED_S + 420
STARTED_AT, ENDED_AT, AGAIN_AT = (
    datetime.fromisoformat(BEGAN).replace(minute=minute, second=second).isoformat()
    for minute, second in ((0, 12), (5, 0), (7, 2))
)
KILL = signal.SIGKILL
AWAY = SlurmTimeoutError("Slurm does not answer")
NO_HISTORY = NoAccounting(reason="Slurm accounting storage is disabled")

Entries = tuple[LedgerEntry, ...]


def began(attempt: int = 0, *, job_id: str = "7") -> Entries:
    at = AGAIN_AT if attempt else STARTED_AT
    return (
        LedgerEntry(event="started", attempt=attempt, at=at, job_id=job_id, nodes="c[1-2]"),
    )


def told(cause: str, attempt: int = 0) -> Entries:
    return (LedgerEntry(event="notice", attempt=attempt, at=ENDED_AT, cause=cause),)


def over(cause: str, exit_code: int = 0, detail: str = "", attempt: int = 0) -> Entries:
    end = LedgerEntry(
        event="ended",
        attempt=attempt,
        at=ENDED_AT,
        cause=cause,
        exit_code=exit_code,
        detail=detail,
    )
    return (*began(attempt), end)


def put_back(cause: str) -> Entries:
    return (*over(cause, 85), LedgerEntry(event="requeued", attempt=0, at=ENDED_AT))


def job(state: JobState, reason: str = "None", **changes: object) -> JobInfo:
    """Slurm's record of job 7: where it waits or has come back once, by restarts."""
    waits = state == JobState.PENDING
    back = changes.get("restarts", 0) != 0
    values: dict[str, object] = {
        "job_id": "7",
        "number": 7,
        "name": "digits.py",
        "comment": MARK,
        "user": "ada",
        "user_id": os.getuid(),
        "partition": "spot",
        "state": state,
        "state_text": state.upper(),
        "reason": reason,
        "nodes": "" if waits else "c[1-2]",
        "node_count": 2,
        "restarts": 0,
        "requeue": True,
        "submit_time_s": ENDED_S + 1 if back else SUBMITTED_S,
        "eligible_time_s": SUBMITTED_S,
        "start_time_s": None if waits else AGAIN_S if back else STARTED_S,
        "end_time_s": None if waits else ENDED_S + 3,
        "preempt_time_s": None,
        "time_limit_s": 600,
        "exit_code": 0,
        "exit_signal": 0,
        **changes,
    }
    return JobInfo(**values)  # type: ignore[arg-type]


def row(state: JobState, text: str = "", **changes: object) -> HistoryRow:
    """The accounting's row of one run of job 7."""
    values: dict[str, object] = {
        "job_id": "7",
        "number": 7,
        "name": "digits.py",
        "comment": "",
        "user": "ada",
        "partition": "spot",
        "state": state,
        "state_text": text or state.upper(),
        "reason": "None",
        "nodes": "c[1-2]",
        "node_count": 2,
        "submit_time_s": SUBMITTED_S,
        "start_time_s": STARTED_S,
        "end_time_s": ENDED_S + 3,
        "elapsed_s": 290,
        "time_limit_s": 600,
        "exit_code": 0,
        "exit_signal": 0,
        **changes,
    }
    return HistoryRow(**values)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenEnd:
    """One end. injected: what was done. ledger, job, rows, down: what is left of it: in the
    run's ledger, with slurmctld, in the accounting (None: there is none), nodes that are lost.
    silent: which of Slurm's two does not answer. state, said, causes: what `status` must say;
    said: words of the reason."""

    injected: str
    state: str
    said: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    ledger: Entries = ()
    job: JobInfo | None = None
    rows: tuple[HistoryRow, ...] | None = None
    down: tuple[str, ...] = ()
    silent: str = ""
    cluster: str | None = None


class SlurmOf(FakeSlurm):
    """A Slurm that shows one end."""

    def __init__(self, end: WrittenEnd) -> None:
        super().__init__()
        self._end = end

    def jobs_by_id(self, job_ids: Sequence[str]) -> tuple[JobInfo, ...]:
        self._may_answer("slurmctld")
        found = self._end.job
        return (found,) if found is not None and found.job_id in job_ids else ()

    def history(self, job_ids: Sequence[str]) -> tuple[HistoryRow, ...] | NoAccounting:
        self._may_answer("slurmdbd")
        return NO_HISTORY if self._end.rows is None else self._end.rows

    def nodes(self) -> tuple[NodeInfo, ...]:
        return tuple(
            replace(node, states=frozenset({"DOWN"})) if node.name in self._end.down else node
            for node in super().nodes()
        )

    def _may_answer(self, who: str) -> None:
        if self._end.silent == who:
            raise AWAY


def status_of(end: WrittenEnd, place: Path) -> RunStatus:
    """What is said of it, from a run folder that is made in place."""
    run = replace(make_run(place, "7"), cluster=end.cluster)
    tell(run, *end.ledger)
    shown = overview([run], SlurmOf(end), closely=True, now=lambda: AGAIN_S)
    return shown.runs[0]


def differences(end: WrittenEnd, status: RunStatus) -> list[str]:
    """What `status` says of it and must not, in words."""
    wrong = []
    if status.state != end.state:
        wrong.append(f"{status.state}, not {end.state}")
    wrong += [
        f"{word!r} not in {status.reason!r}" for word in end.said if word not in status.reason
    ]
    if tuple(causes(status)) != end.causes:
        wrong.append(f"causes {causes(status)}, not {end.causes}")
    return wrong
