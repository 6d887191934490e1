"""How a preempted run comes back where Slurm requeues it by itself, or may not be asked."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from counting_trainer import TRAIN
from sbtrain.slurm.client import SlurmVersion
from sbtrain.slurm.ending import awaits_success_of, way_back_of
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
    run.wait_for(lambda: "sbtrain: step " in run.output)
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


# -- what has ended for good, and Slurm would start again ------------------------------

HANGS_AT_ITS_END = TRAIN + "print('hangs', flush=True); time.sleep(600)\n"


def complete_run(folder: Path, way: WayBack, script: str = TRAIN) -> SupervisedRun:
    run = supervised_run(folder, script, steps=3, grace_s=4.0)
    (folder / "way_back").write_text(way)
    return run


def preempted_at_its_end(run: SupervisedRun) -> int:
    run.start()
    run.wait_for(lambda: "hangs" in run.output and "hangs" in run.log("worker-1"))
    run.say_cause("preempted")
    run.signal(signal.SIGUSR1)
    return run.wait()


def forbidden(run: SupervisedRun) -> list[str]:
    path = run.folder / "forbidden"
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize(("way", "asked"), [("exit", ["7"]), ("wait", ["7"]), ("requeue", [])])
def test_a_run_that_is_complete_when_preempted_is_not_started_again(
    tmp_path: Path, way: WayBack, asked: list[str]
) -> None:
    run = complete_run(tmp_path, way, HANGS_AT_ITS_END)
    assert preempted_at_its_end(run) == 0, run.output
    assert forbidden(run) == asked
    assert run.requeues == []
    assert (run.last("ended").cause, run.last("ended").exit_code) == ("completed", 0)
    assert "requeued" not in run.events()


def test_a_preemption_that_nobody_heard_of_counts_at_the_end(tmp_path: Path) -> None:
    says = f"open({str(tmp_path / 'cause')!r}, 'w').write('preempted')\n"
    run = complete_run(tmp_path, "exit", TRAIN + says)
    run.start()
    assert run.wait() == 0, run.output
    assert forbidden(run) == ["7"]


@pytest.mark.parametrize("cause", ["none", "time-limit", "error"])
def test_a_run_that_was_never_preempted_may_be_requeued_by_hand(
    tmp_path: Path, cause: str
) -> None:
    run = complete_run(tmp_path, "exit")
    run.say_cause("none")
    run.start()
    run.wait_for(lambda: "sbtrain: step " in run.output)
    run.say_cause(cause)
    assert run.wait() == 0, run.output
    assert forbidden(run) == []


def test_a_cancel_needs_no_more(tmp_path: Path) -> None:
    run = supervised_run(tmp_path, TRAIN, steps=100_000)
    preempt(run, "exit")
    run.say_cause("cancelled")
    assert run.wait() == 143, run.output
    assert forbidden(run) == []


def test_a_run_that_was_requeued_as_often_as_allowed_stays_ended(tmp_path: Path) -> None:
    run = supervised_run(tmp_path, TRAIN, steps=100_000, max_requeues=0)
    preempt(run, "exit")
    assert run.wait() == 143, run.output
    assert run.last("ended").cause == "requeue-cap"
    assert forbidden(run) == ["7"]


def test_a_preemption_that_outlasted_its_grace_counts_in_the_next_attempt(
    tmp_path: Path,
) -> None:
    """Slurm requeued the job itself; its next end would be taken for one within a grace."""
    slow = "def save(folder):\n        time.sleep(0 if run.attempt else 60)"
    run = complete_run(tmp_path, "exit", TRAIN.replace("def save(folder):", slow))
    run.start()
    run.wait_for(lambda: "sbtrain: step " in run.output)
    run.say_cause("preempted")
    run.signal(signal.SIGUSR1)
    run.wait_for(lambda: "notice" in run.events())
    run.stop()
    run.say_cause("none")
    run.start(restart_count=1)
    assert run.wait() == 0, run.output
    assert forbidden(run) == ["7"]


def test_where_another_job_waits_for_its_success_slurm_starts_it_again_and_it_ends_at_once(
    tmp_path: Path,
) -> None:
    run = complete_run(tmp_path, "exit", HANGS_AT_ITS_END)
    (tmp_path / "awaited").touch()
    assert preempted_at_its_end(run) == 0, run.output
    assert forbidden(run) == []
    said = "Slurm may start job 7 once more (another job waits for this one to complete)"
    assert said in run.output
    assert run.last("requeued").cause == "completed"
    run.say_cause("none")
    run.start(restart_count=1)
    assert run.wait(20) == 0, run.output
    assert "the run had completed before: nothing is left to do" in run.output
    assert run.log("worker-0", attempt=1) == ""


def test_where_slurm_refuses_it_is_said_and_the_next_attempt_ends_at_once(
    tmp_path: Path,
) -> None:
    run = complete_run(tmp_path, "exit", HANGS_AT_ITS_END)
    (tmp_path / "refuse").touch()
    assert preempted_at_its_end(run) == 0, run.output
    assert "Slurm may start job 7 once more (Access/permission denied)" in run.output
    run.say_cause("none")
    run.start(restart_count=1)
    assert run.wait(20) == 0, run.output
    assert run.log("worker-0", attempt=1) == ""


def test_what_is_requeued_by_hand_after_it_completed_runs_again(tmp_path: Path) -> None:
    run = complete_run(tmp_path, "exit")
    for attempt in (0, 1):
        run.start(restart_count=attempt)
        assert run.wait() == 0, run.output
        assert "starts after step" in run.log("worker-0", attempt=attempt)


@pytest.mark.parametrize(
    ("dependencies", "waits"),
    [
        ("afterok:7(unfulfilled)", True),
        ("aftercorr:7_*(unfulfilled)", True),
        ("afterany:3(unfulfilled),afterok:7_2(unfulfilled)", True),
        ("(null)\nafterok:77(unfulfilled)\nafterok:17(unfulfilled)", False),
        ("afterany:7(unfulfilled)", False),
        ("afternotok:7(unfulfilled)", False),
        ("singleton(unfulfilled)", False),
        ("", False),
    ],
)
def test_who_waits_for_success_is_read_from_squeue(dependencies: str, waits: bool) -> None:
    assert awaits_success_of("7", dependencies) is waits
