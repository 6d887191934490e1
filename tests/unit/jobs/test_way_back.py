"""How a preempted run comes back where Slurm requeues it by itself, or may not be asked."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from counting_trainer import TRAIN
from sbtrain.slurm.client import SlurmVersion
from sbtrain.slurm.ending import way_back_of
from sbtrain_jobs.ending.job_control import WayBack
from supervised_runs import SupervisedRun, supervised_run


@pytest.fixture
def run(tmp_path: Path) -> Iterator[SupervisedRun]:
    run = supervised_run(tmp_path, TRAIN, steps=100_000)
    yield run
    run.stop()


def preempt(run: SupervisedRun, way: WayBack) -> None:
    (run.folder / "way_back").write_text(way)
    run.start()
    run.wait_for(lambda: "step " in run.output)
    run.say_cause("preempted")
    run.signal(signal.SIGUSR1)


@pytest.mark.parametrize(
    ("year", "month", "way"),
    [
        (21, 8, "requeue"),
        (22, 5, "requeue"),
        (23, 2, "wait"),
        (24, 5, "wait"),
        (24, 11, "exit"),
        (26, 5, "exit"),
    ],
)
def test_the_way_back_is_as_seen_on_each_version(year: int, month: int, way: WayBack) -> None:
    assert way_back_of(SlurmVersion(year=year, month=month, patch=8)) == way


def test_where_slurm_requeues_upon_an_exit_it_is_not_asked_to(run: SupervisedRun) -> None:
    preempt(run, "exit")
    assert run.wait() == 85, run.output
    assert run.saved_steps == [run.last("saved").step]
    assert run.requeues == []
    assert "leaving to Slurm the requeue of job 7" in run.output
    assert run.events()[-1] == "requeued"


def test_where_neither_is_known_to_be_safe_it_stays_until_slurm_ends_it(
    run: SupervisedRun,
) -> None:
    preempt(run, "wait")
    run.wait_for(lambda: "leaving to Slurm the requeue" in run.output)
    with pytest.raises(Exception, match="timed out"):
        run.wait(within_s=3.0)
    assert run.requeues == []
    run.signal(signal.SIGTERM)  # as Slurm does when the grace ends
    time.sleep(1.0)
    assert run.requeues == []
