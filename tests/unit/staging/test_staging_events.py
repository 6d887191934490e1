"""Staging's progress: a line for people, and one in the event log for programs."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest

from sbtrain_staging.reports.events import EventLog, newest_event
from sbtrain_staging.reports.progress import StagingProgress


def test_progress_names_the_node_that_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    log, said = tmp_path / "events.jsonl", io.StringIO()
    progress = StagingProgress(node_names=("c1", "c2"), stream=said, events=EventLog(log))
    progress.begin("staging d.h5", (1000, 1000))
    progress.show((100, 100))  # too soon to say anything
    now_s[0] += 4.0
    progress.show((800, 400))
    assert said.getvalue() == (
        "sbtrain: staging d.h5: 400 B of 1 KB, 100 B/s, 6 s left; c2 is 400 B behind\n"
    )
    now_s[0] += 6.0
    progress.end((1000, 1000))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["event"] for line in lines] == ["begin", "progress", "end"]
    assert {line["source"] for line in lines} == {"staging"}
    told = {k: v for k, v in lines[1].items() if k not in ("at", "source", "event", "title")}
    assert told == {
        "node": "c2",
        "bytes": 1000,
        "done_bytes": 400,
        "seconds": 4.0,
        "bytes_1_s": 100,
        "behind_bytes": 400,
    }
    assert (lines[2]["seconds"], lines[2]["bytes_1_s"]) == (10.0, 100)
    assert log.stat().st_mode & 0o777 == 0o600


def test_quiet_progress_is_in_the_log_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now_s[0])
    log, said = tmp_path / "events.jsonl", io.StringIO()
    progress = StagingProgress(
        node_names=("c1",), stream=said, events=EventLog(log), quiet=True
    )
    progress.begin("staging d.h5", (1000,))
    now_s[0] += 4.0
    progress.show((400,))
    assert said.getvalue() == ""
    assert len(log.read_text().splitlines()) == 2


def test_the_newest_event_of_a_torn_log(tmp_path: Path) -> None:
    log = tmp_path / "events.jsonl"
    assert newest_event(log) is None
    EventLog(log).add("begin", bytes=3)
    with log.open("ab") as stream:
        stream.write(b'{"event": "prog')
    found = newest_event(log)
    assert found is not None
    assert (found["event"], found["bytes"]) == ("begin", 3)


def test_a_log_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    EventLog(tmp_path / "gone" / "events.jsonl").add("begin")
    assert newest_event(tmp_path / "gone" / "events.jsonl") is None
