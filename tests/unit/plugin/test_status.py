"""`sbtrainctl status`: the list of runs, one run, an array, at any width. What it says of how
runs end is held by test_written_ends.py."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path

import pytest

from commands import WITHOUT_SLURM, clean_environ, sbtrainctl
from fake_slurm import FakeSlurm
from run_folders import BEGAN, ended, make_run, started, tell
from sbtrain.commands.ctl import run
from sbtrain.commands.status import causes, detail, table, under_way
from sbtrain.errors import SlurmTimeoutError
from sbtrain.runs.run_list import ListedRun, append_run
from sbtrain.runs.run_status import RunStatus, Tasks, overview
from sbtrain.runs.standing import UNKNOWN
from sbtrain.slurm.client import JobInfo, Submission
from sbtrain_jobs.record.ledger import Ledger, LedgerEntry
from sbtrain_jobs.training.checkpoint import CheckpointStore
from sbtrain_staging.reports.events import EventLog


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return clean_environ(PATH=WITHOUT_SLURM, SBTRAIN_HOME=str(tmp_path / "home"))


def save_weights(folder: Path) -> None:
    (folder / "weights").write_bytes(b"x" * 10)


def only(statuses: tuple[RunStatus, ...]) -> RunStatus:
    (status,) = statuses
    return status


def silent_slurm() -> FakeSlurm:
    """A slurmctld that does not answer."""
    slurm = FakeSlurm()
    slurm.fail_next("jobs_by_id", SlurmTimeoutError("Slurm does not answer squeue"))
    return slurm


def submitted(slurm: FakeSlurm, place: Path, *options: str, runs_s: float = 600) -> ListedRun:
    """A run whose job is there, marked as ours are."""
    script = f"#!/bin/sh\nsleep {runs_s}\n"
    next_id = len(slurm.submissions) + 1
    slurm.submit(
        Submission(script_text=script, options=("-N1", *options), token=f"digits-{next_id}")
    )
    return make_run(place, str(next_id), sbatch_options=options)


def test_what_the_folder_of_a_finished_run_tells(tmp_path: Path) -> None:
    run = make_run(tmp_path, "7")
    requeued = LedgerEntry(event="requeued", attempt=0, at=BEGAN)
    notice = LedgerEntry(event="notice", attempt=0, at=BEGAN, cause="preempted")
    saved = LedgerEntry(event="saved", attempt=0, at=BEGAN, step=90)
    tell(run, started(0), notice, saved, ended(0, "preempted", 85), requeued)
    tell(run, started(1), ended(1, "completed"))
    (tmp_path / "digits-7/final").mkdir()
    (tmp_path / "digits-7/final/result.json").write_text('{"accuracy": 0.97}')
    CheckpointStore(tmp_path / "digits-7/checkpoints").write(90, save_weights)
    found = overview([run], silent_slurm())
    assert found.silence == ""  # nothing hung on it
    status = only(found.runs)
    assert status.state == "completed"
    assert [one.cause for one in status.attempts] == ["preempted", "completed"]
    assert status.attempts[0].notices == ("preempted",)
    assert (status.saved_step, status.took_s, status.predicted_s) == (90, 300.0, 33.0)
    assert status.metrics == {"accuracy": 0.97}


def test_slurm_is_not_asked_of_what_ended_long_ago(tmp_path: Path) -> None:
    run = make_run(tmp_path, "7")
    tell(run, started(0), ended(0, "completed"))

    class Unasked(FakeSlurm):
        def jobs_by_id(self, job_ids: object) -> tuple[JobInfo, ...]:
            raise AssertionError

    assert only(overview([run], Unasked()).runs).state == "completed"


def test_slurm_tells_of_runs_that_are_not_over(tmp_path: Path) -> None:
    slurm = FakeSlurm()
    run = submitted(slurm, tmp_path)
    assert only(overview([run], slurm).runs).state == "running"
    slurm.cancel(run.job_id)
    status = only(overview([run], slurm).runs)
    assert status.state == "cancelled"
    assert status.took_s is not None


def test_an_attempt_whose_end_nobody_wrote_is_not_running(tmp_path: Path) -> None:
    run = make_run(tmp_path, "7")
    tell(run, started(0), started(1))
    status = overview([run], silent_slurm()).runs[0]
    assert causes(status) == ["end not recorded", "running"]
    assert causes(replace(status, going=False)) == ["end not recorded"] * 2


def test_a_silent_slurm_hides_no_run(tmp_path: Path) -> None:
    run, over = make_run(tmp_path, "7"), make_run(tmp_path, "8")
    tell(over, started(0), ended(0, "failed", 3))
    found = overview([run, over], silent_slurm())
    assert "does not answer" in found.silence
    assert [status.state for status in found.runs] == [UNKNOWN, "failed"]


def test_a_run_folder_that_is_gone(tmp_path: Path) -> None:
    slurm = FakeSlurm()
    run = replace(submitted(slurm, tmp_path), run_dir=str(tmp_path / "no"))
    status = only(overview([run], slurm).runs)
    assert "cannot read the plan" in status.problem
    assert status.state == "running"
    assert only(overview([replace(run, job_id="9")], slurm).runs).state == "lost"


# Arrays


def test_an_array_is_one_line_with_its_tasks_by_state(tmp_path: Path) -> None:
    slurm = FakeSlurm()
    array = submitted(slurm, tmp_path, "--array=0-99%40")
    for task, cause in ((0, "completed"), (1, "failed"), (2, "failed"), (5, "failed")):
        folder = array.folder.task(str(task))
        folder.path.mkdir()
        for entry in (started(0, job_id=f"1_{task}"), ended(0, cause)):
            Ledger(folder.ledger).append(entry)
    slurm.cancel("1_9")
    status = only(overview([array], slurm).runs)
    groups = {group.state: (group.count, group.numbers) for group in status.tasks}
    assert groups["failed"] == (3, "1-2,5")
    assert (groups["completed"], groups["cancelled"]) == ((1, "0"), (1, "9"))
    assert status.state == next(iter(groups)) == "running"
    assert sum(count for count, _ in groups.values()) == 100
    lines = table([status], width=120).splitlines()
    assert len(lines) == 2
    assert "3 failed, 1 cancelled, 1 completed" in lines[1]
    said = detail(status, width=80)
    assert "3 failed: 1-2, 5" in said
    assert len(said.splitlines()) < 15


def test_an_array_of_a_thousand_is_read_at_once(tmp_path: Path) -> None:
    slurm = FakeSlurm()
    array = submitted(slurm, tmp_path, "--array=0-999")
    status = only(overview([array], slurm).runs)
    assert sum(group.count for group in status.tasks) == 1000
    assert len(table([status] * 20, width=120).splitlines()) == 21


def test_an_array_is_over_with_its_last_task(tmp_path: Path) -> None:
    slurm = FakeSlurm(accounting=False)
    array = make_run(tmp_path, "7", sbatch_options=("--array=3,4",))
    for task in ("3", "4"):
        folder = array.folder.task(task)
        folder.path.mkdir()
        for entry in (started(0, job_id=f"7_{task}"), ended(0, "completed")):
            Ledger(folder.ledger).append(entry)
    status = only(overview([array], slurm).runs)
    assert (status.state, status.over, status.took_s) == ("completed", True, 300.0)
    assert status.tasks == (Tasks(state="completed", count=2, numbers="3-4"),)


# The command


def test_status_tells_how_far_staging_is(tmp_path: Path) -> None:
    run = make_run(tmp_path, "7")
    tell(run, started(0))
    status = only(overview([run], silent_slurm()).runs)
    (attempt,) = status.attempts
    assert under_way(status) == ""
    folder = Path(status.run_dir, "attempts", str(attempt.attempt))
    folder.mkdir(parents=True, exist_ok=True)
    log = EventLog(folder / "events.jsonl")
    facts: dict[str, str | float] = {"title": "staging d.h5", "node": "c7", "bytes": 4 * 10**9}
    log.add("progress", **facts, done_bytes=10**9, bytes_1_s=10**8)
    assert under_way(status) == "staging d.h5: 25% on c7, the last, 100 MB/s, 30 s left"
    assert under_way(replace(status, going=False)) == ""
    log.add("end", **facts, done_bytes=4 * 10**9, bytes_1_s=10**8)
    assert under_way(status) == ""


def test_status_as_a_command(tmp_path: Path, environ: dict[str, str]) -> None:
    said = sbtrainctl("status", cwd=tmp_path, environ=environ)
    assert (said.returncode, said.stdout) == (0, "no runs yet: submit one with sbtrain\n")
    run = make_run(tmp_path, "7")
    tell(run, started(0), ended(0, "failed", 3))
    append_run(run, environ)
    listed = sbtrainctl("status", cwd=tmp_path, environ=environ).stdout
    assert "digits-7" in listed.splitlines()[1]
    for name in ("7", "last", "dig"):
        said = sbtrainctl("status", name, cwd=tmp_path, environ=environ)
        assert "failed after 5 min, exit status 3" in said.stdout
    data = json.loads(sbtrainctl("status", "--json", cwd=tmp_path, environ=environ).stdout)
    assert (data[0]["state"], data[0]["attempts"][0]["exit_code"]) == ("failed", 3)
    said = sbtrainctl("status", "8", cwd=tmp_path, environ=environ)
    assert said.returncode == 2
    assert "there is no run or job '8'" in said.stderr


@pytest.mark.parametrize("columns", [50, 60, 80, 120, 200])
def test_status_fits_the_screen(
    columns: int,
    tmp_path: Path,
    environ: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    one = make_run(tmp_path, "7")
    tell(one, started(0), ended(0, "preempted", 85), started(1), ended(1, "failed", 3))
    append_run(one, environ)
    for name in ("SBTRAIN_HOME", "PATH"):
        monkeypatch.setenv(name, environ[name])
    monkeypatch.setenv("COLUMNS", str(columns))
    assert run(["status"], environ) == 0
    said = capsys.readouterr().out
    assert max(map(len, said.splitlines())) <= columns
    for word in ("digits-7", "preempted, failed", "-/200"):
        assert word in said
    assert run(["status", "7"], environ) == 0
    said = capsys.readouterr().out
    folder = len(one.run_dir) + 9  # a path is not broken
    assert max(map(len, said.splitlines())) <= max(columns, folder)


def test_behind_a_pipe_the_terminal_of_stderr_counts(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    """As with `sbtrainctl status | less`."""
    append_run(make_run(tmp_path, "7"), environ)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 60, 0, 0))
    command = [sys.executable, "-m", "sbtrain.commands.ctl", "status", "7"]
    said = subprocess.run(
        command, env=environ, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, check=True
    )
    for end in (ours, theirs):
        os.close(end)
    words = [line for line in said.stdout.decode().splitlines() if str(tmp_path) not in line]
    assert 40 < max(map(len, words)) <= 60


def test_status_without_slurm_says_so(tmp_path: Path, environ: dict[str, str]) -> None:
    append_run(make_run(tmp_path, "7"), environ)
    said = sbtrainctl("status", cwd=tmp_path, environ=environ)
    assert said.returncode == 0
    assert " unknown " in said.stdout
    assert "warning: cannot run" in said.stderr
