"""The cause ledger of a run: every attempt's start, notices, saves and end, with the cause.

Slurm keeps a restart count but no cause; this file does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.hostlist import compress, expand
from sbtrain_jobs.record.json_lines import append_line, read_lines

LedgerEvent = Literal[
    "started",  # an attempt began
    "notice",  # it was told to stop: cause says why, detail which signal
    "saved",  # its state after `step` is on disk, because of a notice
    "ended",  # it is over: cause says why, exit_code is the job's
    "requeued",  # the supervisor puts the job back into the queue
    "requeue-failed",  # Slurm refused that; detail says how
]

LOST_DETAIL = "it left no end; written by the next attempt"
END_CAUSES_FINAL = ("completed", "failed", "cancelled", "launch-failed", "requeue-cap")


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """One line. at: ISO 8601, UTC. cause: of a notice or an end, else empty. output, errors:
    the job's files, of a start."""

    event: LedgerEvent
    attempt: int
    at: str
    job_id: str = ""
    cause: str = ""
    step: int | None = None
    exit_code: int | None = None
    nodes: str = ""
    detail: str = ""
    output: str = ""
    errors: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """What the ledger says of one attempt. An empty ended_at: it still runs, or was lost."""

    attempt: int
    job_id: str
    started_at: str
    nodes: str
    notices: tuple[str, ...] = ()  # causes, in order
    saved_step: int | None = None
    ended_at: str = ""
    cause: str = ""
    detail: str = ""  # what else is to be said of the end
    exit_code: int | None = None
    requeued: bool = False
    requeue_failed: bool = False  # detail says how
    output: str = ""
    errors: str = ""


class Ledger:
    """Appends to one run's ledger.

    Raises:
        LaunchError: the run folder cannot be written; `append` raises it too.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, entry: LedgerEntry) -> None:
        kept = {key: value for key, value in asdict(entry).items() if value not in ("", None)}
        try:
            append_line(self.path, kept)
        except OSError as error:
            raise LaunchError(
                f"cannot write the ledger {self.path}: {error.strerror}",
                hint="the run folder must be writable from the first node of the job",
            ) from error

    def entries(self) -> tuple[LedgerEntry, ...]:
        return read_ledger(self.path)


def read_ledger(path: str | Path) -> tuple[LedgerEntry, ...]:
    """All whole lines; none when there is no such file.

    Raises:
        LaunchError: it exists and cannot be read.
    """
    try:
        return read_lines(Path(path), LedgerEntry)[0]
    except OSError as error:
        raise LaunchError(f"cannot read the ledger {path}: {error.strerror}") from error


def attempts(entries: Sequence[LedgerEntry]) -> tuple[AttemptRecord, ...]:
    """One record for each attempt, in order of their start; it is the job's that began it."""
    records: dict[int, AttemptRecord] = {}
    for entry in entries:
        record = records.get(entry.attempt) or AttemptRecord(
            attempt=entry.attempt, job_id=entry.job_id, started_at=entry.at, nodes=entry.nodes
        )
        if record.job_id and entry.job_id not in ("", record.job_id):
            continue  # of a job that began the same attempt later, and gave way
        match entry.event:
            case "started":
                record = replace(
                    record,
                    job_id=entry.job_id,
                    started_at=entry.at,
                    nodes=entry.nodes,
                    output=entry.output,
                    errors=entry.errors,
                )
            case "notice":
                record = replace(record, notices=(*record.notices, entry.cause))
            case "saved":
                record = replace(record, saved_step=entry.step)
            case "ended":
                record = replace(
                    record,
                    ended_at=entry.at,
                    cause=entry.cause,
                    detail=entry.detail,
                    exit_code=entry.exit_code,
                )
            case "requeued":
                record = replace(record, requeued=True)
            case "requeue-failed":
                record = replace(
                    record, requeued=False, requeue_failed=True, detail=entry.detail
                )
        records[entry.attempt] = record
    return tuple(records.values())


def next_attempt(records: Sequence[AttemptRecord], restart_count: int) -> int:
    """The number of the attempt that starts now.

    Slurm's restart count is the number, except where the ledger knows more: a run submitted
    again under a new job id goes on counting.
    """
    return max([restart_count, *(record.attempt + 1 for record in records)])


def end_of_lost(record: AttemptRecord, down: Sequence[str]) -> tuple[str, str]:
    """Cause and detail of an attempt that left no end: its last notice, else a lost node where
    one of its nodes is among those that are down; a killed supervisor leaves no sign."""
    lost = [node for node in expand(record.nodes) if node in down]
    cause = record.notices[-1] if record.notices else "node-fail" if lost else "unknown"
    return cause, "; ".join(filter(None, (LOST_DETAIL, lost_in_words(lost))))


def lost_in_words(nodes: Sequence[str]) -> str:
    if not nodes:
        return ""
    return f"{'node' if len(nodes) == 1 else 'nodes'} {compress(nodes)} lost"


def seconds_between(begin: str, end: str) -> float | None:
    """Seconds from one ISO 8601 time to another; None where one of them is no time."""
    try:
        passed = datetime.fromisoformat(end) - datetime.fromisoformat(begin)
    except (ValueError, TypeError):  # of two times, one has no zone
        return None
    return passed.total_seconds()


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
