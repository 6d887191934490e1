"""`sbtrainctl logs`: which files are a run's, what is said where there are none, following."""

from __future__ import annotations

import getpass
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from commands import WITHOUT_SLURM, clean_environ
from fake_slurm import FakeSlurm
from run_folders import ENDED, ended, make_run, started, tell
from sbtrain.commands import logs
from sbtrain.commands.ctl import run as sbtrainctl
from sbtrain.runs.named_run import named_run, plan_of
from sbtrain.runs.output_files import job_files, named_rank
from sbtrain.runs.run_list import ListedRun, append_run
from sbtrain.slurm.client import Submission
from sbtrain_jobs.record.ledger import LedgerEntry
from sbtrain_perf.errors import RequestError


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("SBTRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", WITHOUT_SLURM)
    return clean_environ(PATH=WITHOUT_SLURM, SBTRAIN_HOME=str(tmp_path / "home"))


def began(run: ListedRun, output: Path, errors: Path | None = None, attempt: int = 0) -> None:
    tell(
        run,
        replace(started(attempt), output=str(output), errors=str(errors or output)),
    )


def rank_log(run: ListedRun, attempt: int, rank: str) -> Path:
    path = run.folder.attempt(attempt).path / f"{rank}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


# Which files


@pytest.mark.parametrize(
    ("options", "output", "errors"),
    [
        ((), "slurm-7.out", None),
        (("--output=o-%x-%u.%%.txt", "--job-name=me"), f"o-me-{getpass.getuser()}.%.txt", None),
        (("--output=logs/%6j.out",), "logs/000007.out", None),
        (("--output=%j\\.out",), "%j.out", None),
        (("--output=/abs/%j.out", "--error=e[%A].txt"), "/abs/7.out", "e[7].txt"),
        (("--output=first", "--output=second"), "second", None),
    ],
)
def test_before_an_attempt_the_options_name_the_files(
    options: tuple[str, ...], output: str, errors: str | None, tmp_path: Path
) -> None:
    run = replace(make_run(tmp_path, "7", sbatch_options=options), submit_dir="/submit")
    found = {one.what: str(one.path) for one in job_files(run, plan_of(run), ())}
    expected = {"output": str(Path("/submit") / output)}
    assert found == expected | ({"errors": f"/submit/{errors}"} if errors else {})


def test_what_slurm_alone_knows_may_be_anything(tmp_path: Path) -> None:
    run = make_run(tmp_path, "7", sbatch_options=("--output=%N-[%j].out",))
    run = replace(run, submit_dir=str(tmp_path))
    for place, name in enumerate(("c2-[7].out", "c1-[7].out", "c3-[8].out")):
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (place, place))
    (found,) = job_files(run, plan_of(run), ())
    assert found.path.name == "c1-[7].out"


def test_a_task_has_an_output_of_its_own(tmp_path: Path) -> None:
    array = make_run(tmp_path, "7", sbatch_options=("--array=0-3",))
    task = named_run("7_3", [replace(array, submit_dir="/submit")])
    (found,) = job_files(task, plan_of(task), ())
    assert str(found.path) == "/submit/slurm-7_3.out"


def test_a_rank_goes_by_number_and_by_name(tmp_path: Path) -> None:
    plan = plan_of(make_run(tmp_path, "7"))
    assert [named_rank(name, plan) for name in ("0", "1", "worker-1")] == [
        *("worker-0", "worker-1", "worker-1"),
    ]
    for name in ("2", "-1", "ps-0", ""):
        with pytest.raises(RequestError, match="has no rank"):
            named_rank(name, plan)
    with pytest.raises(RequestError, match="starts its ranks itself"):
        named_rank("0", replace(plan, launch="script"))


# The command


def test_the_output_is_printed_as_it_is(
    tmp_path: Path, environ: dict[str, str], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    run = make_run(tmp_path, "7")
    append_run(run, environ)
    output, errors = tmp_path / "job.out", tmp_path / "job.err"
    output.write_bytes(b"\xff one\n")
    began(run, output)
    assert sbtrainctl(["logs"], environ) == 0
    assert capfdbinary.readouterr().out == b"\xff one\n"
    errors.write_bytes(b"not so\n")
    began(run, output, errors)
    assert sbtrainctl(["logs", "7"], environ) == 0
    heads = [f"==> {path} <==\n".encode() for path in (output, errors)]
    assert (
        capfdbinary.readouterr().out
        == heads[0] + b"\xff one\n" + b"\n" + heads[1] + b"not so\n"
    )


def test_a_rank_s_log_is_that_of_its_newest_attempt(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, "7")
    append_run(run, environ)
    for attempt in (0, 1):
        began(run, tmp_path / "job.out", attempt=attempt)
        rank_log(run, attempt, "worker-0").write_text(f"attempt {attempt}\n")
    rank_log(run, 0, "worker-1").write_text("once\n")
    for name, said in (("0", "attempt 1\n"), ("worker-0", "attempt 1\n"), ("1", "once\n")):
        assert sbtrainctl(["logs", "last", name], environ) == 0
        assert capfd.readouterr().out == said
    assert sbtrainctl(["logs", "--json"], environ) == 0
    listed = json.loads(capfd.readouterr().out)
    assert [(one["what"], one["attempt"], one["bytes"]) for one in listed] == [
        ("output", None, None),
        ("worker-0", 0, 10),
        ("worker-1", 0, 5),
        ("worker-0", 1, 10),
    ]


def test_where_there_is_none_it_says_why(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert sbtrainctl(["logs"], environ) == 2  # nothing was submitted yet
    capfd.readouterr()
    run = replace(make_run(tmp_path, "7"), submit_dir=str(tmp_path))
    append_run(run, environ)
    assert sbtrainctl(["logs"], environ) == logs.NONE_THERE
    said = capfd.readouterr()
    assert said.out == ""
    assert "no output of the job yet; job 7 is unknown" in said.err
    assert f"there is no {tmp_path}/slurm-7.out" in said.err
    began(run, Path(os.devnull))
    tell(run, ended(0, "failed", 3))
    assert sbtrainctl(["logs"], environ) == logs.NONE_THERE
    said = capfd.readouterr()
    assert "no output of the job; job 7 is failed: exit status 3" in said.err
    assert "/dev/null is no file that can be read" in said.err
    assert sbtrainctl(["logs", "7", "1"], environ) == logs.NONE_THERE
    assert "no output of worker-1; " in capfd.readouterr().err


def test_an_array_s_tasks_are_named(
    tmp_path: Path, environ: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    append_run(make_run(tmp_path, "7", sbatch_options=("--array=2-3",)), environ)
    assert sbtrainctl(["logs", "7"], environ) == 2
    assert "name a task, as 7_2" in capfd.readouterr().err


# Following


class Steps:
    """Sleeps by doing the next thing; the test ends where nothing is left to do."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.left = [*steps]

    def __call__(self, seconds: float) -> None:
        assert self.left, "it should have ended"
        self.left.pop(0)()


def source(run: ListedRun, rank: str | None = None) -> logs.Source:
    return logs.Source(run=run, plan=plan_of(run), rank=rank)


def a_job(slurm: FakeSlurm) -> None:
    slurm.submit(Submission(script_text="#!/bin/sh\nsleep 999\n", token="digits-1"))


def test_following_ends_with_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    slurm = FakeSlurm()
    a_job(slurm)
    run, output = make_run(tmp_path, "1"), tmp_path / "job.out"
    run = replace(run, submit_dir=str(tmp_path))
    back = LedgerEntry(event="requeued", attempt=0, at=ENDED)
    steps = Steps(
        lambda: (output.write_text("one\n"), tell(run, started(0, job_id="1"))),
        lambda: tell(run, replace(started(0, job_id="1"), output=str(output))),
        lambda: output.write_text("one\ntwo\n"),
        lambda: tell(run, ended(0, "preempted", 85), back),
        lambda: output.write_text("new\n"),  # by --open-mode=truncate
        lambda: tell(run, started(1, job_id="1"), ended(1, "completed")),
        lambda: output.write_text("new\nlast\n"),
    )
    assert logs.follow(source(run), slurm, sleep=steps) == 0
    assert not steps.left
    said = capfd.readouterr()
    assert said.out == "one\ntwo\nnew\nlast\n"
    assert said.err.count("no output of the job yet; job 1 is running") == 1


def test_following_a_rank_goes_on_in_its_next_attempt(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    slurm = FakeSlurm()
    a_job(slurm)
    run = make_run(tmp_path, "1")
    tell(run, started(0, job_id="1"))
    rank_log(run, 0, "worker-1").write_text("one\n")
    steps = Steps(
        lambda: (
            rank_log(run, 1, "worker-1").write_text("two\n"),
            tell(run, started(1, job_id="1")),
        ),
        lambda: tell(run, ended(1, "failed", 3)),
        lambda: None,
    )
    assert logs.follow(source(run, "worker-1"), slurm, sleep=steps) == 0
    head = f"==> {rank_log(run, 1, 'worker-1')} <=="
    assert capfd.readouterr().out.splitlines() == ["one", head, "two"]


def test_following_ends_where_slurm_says_that_the_job_is_over(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    slurm = FakeSlurm()
    a_job(slurm)
    run = make_run(tmp_path, "1")
    tell(run, started(0, job_id="1"))
    steps = Steps(lambda: slurm.cancel("1"), *[lambda: None] * 61)
    assert logs.follow(source(run), slurm, sleep=steps) == logs.NONE_THERE
    assert len(steps.left) == 1  # asked again after half a minute
    assert capfd.readouterr().out == ""


def test_ctrl_c_ends_it_quietly(tmp_path: Path, environ: dict[str, str]) -> None:
    run, output = make_run(tmp_path, "7"), tmp_path / "job.out"
    append_run(run, environ)
    began(run, output)
    output.write_text("one\n")
    command = [sys.executable, "-m", "sbtrain.commands.ctl", "logs", "-f"]
    with subprocess.Popen(
        command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        assert following.stdout.readline() == b"one\n"
        time.sleep(0.3)
        following.send_signal(signal.SIGINT)
        assert following.wait(20) == 130
        assert following.stderr.read() == b""
