"""The cause ledger survives crashes and tells attempts and causes."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.record.ledger import (
    LOST_DETAIL,
    AttemptRecord,
    Ledger,
    LedgerEntry,
    LedgerEvent,
    attempts,
    end_of_lost,
    next_attempt,
    read_ledger,
)
from sbtrain_jobs.run_folder import RunFolder


def entry(event: LedgerEvent, attempt: int = 0, **rest: object) -> LedgerEntry:
    values: dict[str, object] = {"at": "2026-11-30T10:00:00+00:00", "job_id": "7", **rest}
    return LedgerEntry(event=event, attempt=attempt, **values)


def test_what_is_appended_is_read_back(tmp_path: Path) -> None:
    ledger = Ledger(RunFolder(path=tmp_path).ledger)
    written = [
        entry("started", nodes="c[1-2]"),
        entry("notice", cause="preempted", detail="SIGUSR1 in the batch script"),
        entry("saved", step=120),
        entry("ended", cause="preempted", exit_code=85),
        entry("requeued", cause="preempted"),
    ]
    for line in written:
        ledger.append(line)
    assert ledger.entries() == tuple(written)
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600


def test_no_ledger_means_no_entries(tmp_path: Path) -> None:
    assert read_ledger(tmp_path / "ledger.jsonl") == ()


def test_a_run_folder_that_is_gone_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="cannot write the ledger") as caught:
        Ledger(RunFolder(path=tmp_path / "gone").ledger).append(entry("started"))
    assert "writable" in caught.value.hint


@given(cut=st.integers(1, 60))
def test_a_torn_line_costs_itself_alone(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    ledger = Ledger(RunFolder(path=tmp_path_factory.mktemp("run")).ledger)
    ledger.append(entry("started"))
    whole = ledger.path.read_bytes()
    ledger.append(entry("notice", cause="preempted"))
    torn = ledger.path.read_bytes()[: len(whole) + cut]
    ledger.path.write_bytes(torn)
    ledger.append(entry("started", attempt=1))
    read = [(e.event, e.attempt) for e in ledger.entries()]
    assert read == [("started", 0), ("started", 1)]


def test_lines_of_a_later_sbtrain_are_skipped(tmp_path: Path) -> None:
    ledger = Ledger(RunFolder(path=tmp_path).ledger)
    ledger.path.write_text('{"event": "moved", "attempt": 0, "at": "x"}\n')
    ledger.append(entry("started"))
    assert ledger.entries() == (entry("started"),)


def test_attempts_fold_their_lines() -> None:
    first, second = attempts(
        [
            entry("started", 0, nodes="c1"),
            entry("notice", 0, cause="preempted"),
            entry("saved", 0, step=12),
            entry("ended", 0, cause="preempted", exit_code=85, at="2026-11-30T10:01:00+00:00"),
            entry("requeued", 0, cause="preempted"),
            entry("started", 1, nodes="c2"),
        ]
    )
    assert first == AttemptRecord(
        attempt=0,
        job_id="7",
        started_at="2026-11-30T10:00:00+00:00",
        nodes="c1",
        notices=("preempted",),
        saved_step=12,
        ended_at="2026-11-30T10:01:00+00:00",
        cause="preempted",
        exit_code=85,
        requeued=True,
    )
    assert second.ended_at == ""
    assert second.nodes == "c2"


def test_a_requeue_that_failed_is_none() -> None:
    (record,) = attempts([entry("started"), entry("requeued"), entry("requeue-failed")])
    assert not record.requeued


@pytest.mark.parametrize(
    ("known", "restart_count", "number"),
    [
        ([], 0, 0),
        ([], 2, 2),  # two attempts died before they could write
        ([0], 1, 1),
        ([0, 1], 1, 2),  # the ledger knows more than Slurm
        ([0, 1, 2], 0, 3),  # the run was submitted again as another job
    ],
)
def test_attempts_are_numbered_by_slurm_and_the_ledger(
    known: list[int], restart_count: int, number: int
) -> None:
    records = attempts([entry("started", attempt) for attempt in known])
    assert next_attempt(records, restart_count) == number


@pytest.mark.parametrize(
    ("told", "down", "end"),
    [
        ((), (), ("unknown", LOST_DETAIL)),  # the supervisor alone was killed
        ((), ("c9",), ("unknown", LOST_DETAIL)),
        ((), ("c2", "c9"), ("node-fail", f"{LOST_DETAIL}; node c2 lost")),
        (("preempted",), (), ("preempted", LOST_DETAIL)),
        (("preempted",), ("c1", "c2"), ("preempted", f"{LOST_DETAIL}; nodes c[1-2] lost")),
    ],
)
def test_an_attempt_without_an_end_was_lost_to_its_notice_or_a_node_that_is_down(
    told: tuple[str, ...], down: tuple[str, ...], end: tuple[str, str]
) -> None:
    started = replace(entry("started"), nodes="c[1-3]")
    (record,) = attempts([started, *(entry("notice", cause=cause) for cause in told)])
    assert end_of_lost(record, down) == end
