"""`sbtrain --wait` ends as the job does, also where Slurm is away or has forgotten it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fake_slurm import FakeSlurm
from run_folders import ended, make_run, started, tell
from sbtrain.commands.waiting import SILENT_FOR_S, wait_for_job
from sbtrain.errors import SlurmTimeoutError
from sbtrain.slurm.client import JobInfo, Submission
from sbtrain_jobs.record.ledger import LedgerEntry


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self.asleep: list[Callable[[], object]] = []

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        if self.asleep:
            self.asleep.pop(0)()


class Silent(FakeSlurm):
    """A squeue that fails whenever it is called."""

    def jobs_by_id(self, job_ids: object) -> tuple[JobInfo, ...]:
        raise SlurmTimeoutError("Slurm does not answer squeue")


@pytest.mark.parametrize("status", [0, 3])
def test_the_job_s_own_status(tmp_path: Path, status: int) -> None:
    clock = Clock()
    slurm = FakeSlurm(now=lambda: clock.now_s)
    script = f"#!/bin/sh\nsleep 100\nexit {status}\n"
    job = slurm.submit(Submission(script_text=script)).job_id
    away = SlurmTimeoutError("away")
    clock.asleep = [lambda: None, lambda: slurm.fail_next("jobs_by_id", away)]
    assert wait_for_job(slurm, job, ledger=tmp_path / "none", sleep=clock.sleep) == status
    assert clock.now_s > 1_000_100.0


def test_without_slurm_the_ledger_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, "7")
    tell(run, started(0), ended(0, "preempted", 85))
    clock = Clock()
    clock.asleep = [
        lambda: None,
        lambda: tell(run, LedgerEntry(event="requeued", attempt=0, at="")),
        lambda: tell(run, started(1)),
        lambda: tell(run, ended(1, "failed", 3)),
    ]
    assert wait_for_job(Silent(), "7", ledger=run.folder.ledger, sleep=clock.sleep) == 3
    assert not clock.asleep
    assert capsys.readouterr().err.count("does not answer") == 1


def test_silence_has_an_end(tmp_path: Path) -> None:
    clock = Clock()
    with pytest.raises(SlurmTimeoutError, match="whether job 7 has ended") as raised:
        wait_for_job(Silent(), "7", ledger=tmp_path / "none", sleep=clock.sleep)
    assert raised.value.hint.startswith("sbtrainctl status 7")
    assert 0 < clock.now_s - 1_000_000 - SILENT_FOR_S < 60


def test_a_job_that_is_forgotten_before_the_first_look(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, "7")
    ledger = run.folder.ledger
    assert wait_for_job(FakeSlurm(), "7", ledger=ledger, sleep=Clock().sleep) == 1
    assert "Slurm has forgotten job 7" in capsys.readouterr().err
    tell(run, started(0), ended(0, "completed"))
    assert wait_for_job(FakeSlurm(), "7", ledger=ledger, sleep=Clock().sleep) == 0
