"""A preemption that Slurm tells of nowhere but in the job's own output."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from counting_trainer import TRAIN
from plans import example_plan
from sbtrain_jobs.ending.grace import window_s
from sbtrain_jobs.ending.job_control import EndCause
from sbtrain_jobs.ending.slurms_words import SlurmsWords
from supervised_runs import supervised_run

OF_JOB = "slurmstepd-g1: error: *** JOB {} ON g1 CANCELLED AT 2026-12-01T14:44 DUE TO {} ***\n"
OF_STEP = OF_JOB.replace("JOB {}", "STEP {}.0")


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (OF_JOB.format(7, "PREEMPTION"), True),
        (OF_STEP.format(7, "PREEMPTION"), True),
        (OF_JOB.format(7, "TIME LIMIT"), False),
        (OF_JOB.format(77, "PREEMPTION"), False),
        (OF_JOB.format(7, "PREEMPTION").replace("***", "xxx"), False),
        ("", False),
    ],
)
def test_of_this_job_and_of_this_attempt(tmp_path: Path, written: str, *, told: bool) -> None:
    output = tmp_path / "job.out"
    output.write_text(OF_JOB.format(7, "PREEMPTION"))  # an earlier attempt's
    with output.open("a") as stream:
        words = SlurmsWords("7", descriptor=stream.fileno())
        assert not words.tell_of_preemption()
        stream.write(f"step 1\n{written}")
        stream.flush()
        assert words.tell_of_preemption() is told


def test_an_output_that_is_no_file_tells_nothing(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader), os.fdopen(writer, "w") as stream:
        words = SlurmsWords("7", descriptor=stream.fileno())
        assert not words.tell_of_preemption()
    with (tmp_path / "gone").open("w") as stream:
        words = SlurmsWords("7", descriptor=stream.fileno())
        (tmp_path / "gone").unlink()
        assert not words.tell_of_preemption()


@pytest.mark.parametrize(
    ("written", "cause"), [("", "requeued"), (OF_JOB.format(7, "PREEMPTION"), "preempted")]
)
def test_the_ledger_names_what_is_written(tmp_path: Path, written: str, cause: str) -> None:
    run = supervised_run(tmp_path, TRAIN, steps=100_000)
    try:
        run.start()
        run.wait_for(lambda: "sbtrain: step " in run.output)
        with (tmp_path / "job.out").open("a") as output:
            output.write(written)
        run.say_cause("requeued")
        run.signal(15)
        assert run.wait() == 85, run.output
    finally:
        run.stop()
    assert run.last("notice").cause == cause
    assert run.last("ended").cause == cause
    assert run.requeues == []  # Slurm has done it


@pytest.mark.parametrize(
    ("cause", "detail", "grace_s", "seconds"),
    [
        ("preempted", "", 15.0, 13.0),
        ("preempted", "", 0.0, 38.0),
        ("time-limit", "SIGTERM in the batch script", 15.0, 38.0),
        ("time-limit", "SIGUSR1 in the batch script", 15.0, 55.0),
    ],
)
def test_the_time_to_save_in(
    cause: EndCause, detail: str, grace_s: float, seconds: float
) -> None:
    plan = example_plan(grace_s=grace_s, kill_wait_s=40.0)
    assert window_s(plan, cause=cause, detail=detail) == seconds
