"""What is damaged or gone of one run is said of that run, and hides no other."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from commands import WITHOUT_SLURM, clean_environ, sbtrainctl
from fake_slurm import FakeSlurm
from run_folders import ended, make_run, started, tell
from sbtrain.commands.status import detail, under_way
from sbtrain.errors import SlurmTimeoutError
from sbtrain.runs.named_run import plan_of
from sbtrain.runs.run_list import append_run
from sbtrain.runs.run_status import RunStatus, overview
from sbtrain.slurm.client import Submission
from sbtrain_jobs.training.checkpoint import CheckpointStore

GARBAGE = [b"\xff\xfe", b"", b"nonsense", b"[" * 100_000, b'{"version": 1}', b"9" * 5000]


def progress(done: str, wanted: str) -> bytes:
    """A line of the event log of staging."""
    said = '{"event": "progress", "title": "d.h5", "node": "c1", "bytes_1_s": 1, '
    return f'{said}"done_bytes": {done}, "bytes": {wanted}}}\n'.encode()


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return clean_environ(PATH=WITHOUT_SLURM, SBTRAIN_HOME=str(tmp_path / "home"))


def ended_run(place: Path, environ: dict[str, str], job_id: str) -> Path:
    """The folder of a run that is over."""
    run = make_run(place, job_id)
    tell(run, started(0), ended(0, "completed"))
    append_run(run, environ)
    return Path(run.run_dir)


def status_of(place: Path, environ: dict[str, str]) -> list[dict[str, object]]:
    said = sbtrainctl("status", "--json", cwd=place, environ=environ)
    assert said.returncode == 0, said.stderr

    def refuse(word: str) -> float:
        raise AssertionError(f"{word} is no JSON")

    found: list[dict[str, object]] = json.loads(said.stdout, parse_constant=refuse)
    return found


@pytest.mark.parametrize("content", GARBAGE)
def test_a_damaged_plan_costs_its_own_run_alone(
    tmp_path: Path, environ: dict[str, str], content: bytes
) -> None:
    plan = ended_run(tmp_path, environ, "7") / "plan.json"
    ended_run(tmp_path, environ, "8")
    plan.write_bytes(content)
    first, second = status_of(tmp_path, environ)
    assert str(first["problem"]).startswith(f"{plan} is ")
    assert (second["problem"], second["state"]) == ("", "completed")
    why = sbtrainctl("why", "7", "--json", cwd=tmp_path, environ=environ)
    assert why.returncode == 3
    assert why.stderr.startswith(f"error: {plan} is ")
    assert len(why.stderr.splitlines()) == 2
    refit = sbtrainctl("refit", "--dry-run", "--json", cwd=tmp_path, environ=environ)
    assert refit.returncode == 0, refit.stderr
    (skipped,) = json.loads(refit.stdout)["skipped"]
    assert str(plan) in skipped["reason"]
    assert len(refit.stderr.splitlines()) == 1


def test_the_table_stays_narrow_where_a_plan_is_gone(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    folder = ended_run(tmp_path, environ, "7")
    ended_run(tmp_path, environ, "8")
    (folder / "plan.json").unlink()
    said = sbtrainctl("status", cwd=tmp_path, environ=environ)
    _, first, second, between, *below = said.stdout.splitlines()
    assert first.split()[3:] == ["0", "-", "-", "-", "see", "below"]
    assert second.endswith("completed")
    assert between == ""
    gone = f"cannot read the plan {folder / 'plan.json'}: No such file or directory"
    assert " ".join(map(str.strip, below)) == f"digits-7: {gone}"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"accuracy": NaN}', "accuracy: nan is not a finite number"),
        ('{"loss": 1e999}', "loss: inf is not a finite number"),
        ('{"loss": 1' + "0" * 400 + "}", "loss: inf is not a finite number"),
        ('{"loss": "low"}', "loss: expected a number, found a string"),
        ("[1]", "top level: expected a table, found a list"),
        ("{", "Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ],
)
def test_a_damaged_result_is_no_result(
    tmp_path: Path, environ: dict[str, str], content: str, reason: str
) -> None:
    folder = ended_run(tmp_path, environ, "7")
    result = folder / "final/result.json"
    result.parent.mkdir()
    result.write_text(content)
    (status,) = status_of(tmp_path, environ)
    assert (status["metrics"], status["state"]) == (None, "completed")
    assert status["problem"] == f"the result {result} is damaged: {reason}"


def test_a_damaged_ledger_line_costs_itself_alone(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    folder = ended_run(tmp_path, environ, "7")
    with (folder / "ledger.jsonl").open("ab") as file:
        for line in (b"\xff\xfe", b"[" * 100_000, b"9" * 5000, b'{"step": NaN}'):
            file.write(line + b"\n")
    (status,) = status_of(tmp_path, environ)
    assert status["state"] == "completed"


@pytest.mark.parametrize(
    "content",
    [
        *(content for content in GARBAGE if content),
        progress("NaN", "NaN"),
        progress("-1", "10"),
        progress("true", "10"),
        progress("1" + "0" * 400, "10"),
        progress("1", "1" + "0" * 400),
    ],
)
def test_damaged_progress_is_none(tmp_path: Path, content: bytes) -> None:
    run = make_run(tmp_path, "7")
    tell(run, started(0))
    slurm = FakeSlurm()
    slurm.fail_next("jobs_by_id", SlurmTimeoutError("Slurm does not answer"))
    (status,) = overview([run], slurm).runs
    events = Path(run.run_dir) / "attempts/0/events.jsonl"
    events.parent.mkdir(parents=True)
    events.write_bytes(progress("1", "10"))
    assert under_way(status).startswith("d.h5: 10% on c1")
    events.write_bytes(content)
    assert under_way(status) == ""


def test_a_run_at_its_steps_says_how_far_it_is(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    from sbtrain_perf.timing_log import TimingLog

    run = make_run(tmp_path, "7")
    tell(run, started(0))
    slurm = FakeSlurm()
    slurm.fail_next("jobs_by_id", SlurmTimeoutError("Slurm does not answer"))
    (status,) = overview([run], slurm).runs
    assert under_way(status) == ""
    path = run.folder.attempt(0).timings
    with TimingLog.create(path, plan=plan_of(run), attempt=0) as log:
        log.steps(1, 2, (2.0, *(0.25,) * 60), 8)
        log.phase("steps", 17.0, at_s=0.0, rank=1, input_s=1.7)
    assert under_way(status) == "step 62, 0.25 s a step, 34 s of steps left"
    shown = detail(status, width=80)
    assert "now      step 62, 0.25 s a step, 34 s of steps left\n" in shown
    assert re.search(r"^step .* 0\.25 s$\n^  its input +0\.025 s$", shown, re.M)
    for plan, attempt in ((replace(plan_of(run), steps_known=False), 0), (plan_of(run), 1)):
        path.unlink()
        with TimingLog.create(path, plan=plan, attempt=attempt) as log:
            log.steps(1, 2, (0.25,) * 60, 8)  # of a later attempt hooks count from 1 again
        assert under_way(status) == "step 61, 0.25 s a step"
    path.write_bytes(b"damaged")
    assert under_way(status) == ""


def test_a_time_that_is_none_is_left_out(tmp_path: Path, environ: dict[str, str]) -> None:
    folder = ended_run(tmp_path, environ, "7")
    (folder / "ledger.jsonl").write_text(
        '{"event": "started", "attempt": 0, "at": "2026-11-30T00:00:00+00:00"}\n'
        '{"event": "ended", "attempt": 0, "at": "2026-11-30", "cause": "failed"}\n'
    )
    said = sbtrainctl("status", "7", cwd=tmp_path, environ=environ)
    assert "failed after some time" in said.stdout, said.stderr

    slurm = FakeSlurm()
    job = slurm.submit(Submission(script_text="#!/bin/sh\nsleep 9\n", options=("-N1",)))
    slurm.cancel(job.job_id)
    run = replace(make_run(tmp_path, job.job_id), submitted="noon")
    (status,) = overview([run], slurm).runs
    assert (status.state, status.took_s) == ("cancelled", None)


def test_lines_that_are_left_out_of_the_list_are_counted(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    ended_run(tmp_path, environ, "7")
    runs = tmp_path / "home/runs.jsonl"
    whole = runs.read_bytes()
    runs.write_bytes(b"\xff\xfe\n" + whole + b"{}\n")
    warning = f"sbtrainctl: warning: left out 2 lines of {runs}: not readable as runs"
    for words in (("status",), ("why", "7"), ("refit", "--dry-run")):
        said = sbtrainctl(*words, cwd=tmp_path, environ=environ)
        assert said.returncode == 0
        assert said.stderr.splitlines() == [warning]
        assert "digits-7" in said.stdout or words[0] == "refit"
    runs.write_bytes(whole[:-20])
    said = sbtrainctl("status", cwd=tmp_path, environ=environ)
    assert said.stdout == "no runs that can be read\n"
    assert f"left out 1 line of {runs}" in said.stderr


def test_checkpoints_are_looked_for_where_the_user_put_them(tmp_path: Path) -> None:
    named = tmp_path / "named"

    def status() -> RunStatus:
        (found,) = overview([run], FakeSlurm()).runs
        return found

    run = make_run(tmp_path, "7", checkpoint_dir=str(named))
    assert status().saved_step is None
    CheckpointStore(named).write(3, save_weights)
    assert status().saved_step == 3


def save_weights(folder: Path) -> None:
    (folder / "weights").write_bytes(b"x" * 10)
