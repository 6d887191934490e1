"""Notices on a real Slurm: preemption, the time limit, cancelling, signals by hand."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from counting_trainer import TRAIN
from plans import example_plan
from slurm_runs import SlurmRun, preemptor, slurm_run

pytestmark = pytest.mark.slurm


def assert_resumed_where_saved(run: SlurmRun, *, cause: str) -> int:
    """One requeue, the same job, the step that was saved; that step."""
    first, second = run.attempts
    saved = first.saved_step
    assert saved is not None
    assert saved in run.saved_steps
    assert (first.cause, first.exit_code, first.requeued) == (cause, 85, True)
    for rank in range(run.plan.workers):
        log = run.log(f"worker-{rank}", attempt=1)
        assert f"rank {rank} attempt 1 starts after step {saved}" in log
    assert run.shown("Restarts") == "1"
    assert second.job_id == first.job_id == run.job_id
    return saved


@pytest.mark.parametrize("signal", ["B:USR1@60", "USR1@60", ""])
def test_a_preempted_run_saves_is_requeued_once_resumes_and_finishes(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun], signal: str
) -> None:
    """With the signal to the batch script, to the steps, or none asked for at all: then
    the steps get TERM at once and the batch script nothing before the grace is over."""
    run = slurm_run(
        tmp_path, slurm_environment, TRAIN, partition="spot", steps=150, grace_s=15.0
    )
    runs.append(run)
    said = [f"--signal={signal}"] if signal else []
    run.submit("--time=10", *said, nodelist="g1,g2", not_added="" if signal else "--signal")
    run.wait_for_steps()
    urgent = preemptor(run, "g1,g2")
    run.wait_for_state("PENDING", within_s=40)
    assert run.shown("StartTime", urgent) != "Unknown"
    run.wait_for_state("COMPLETED", "FAILED", within_s=90)
    assert run.state == "COMPLETED", run.output
    saved = assert_resumed_where_saved(run, cause="preempted")
    assert 0 < saved < 150
    assert run.attempts[1].cause == "completed"


@pytest.mark.parametrize("signal", ["B:USR1@60", "USR1@60"])
def test_a_preempted_shell_script_saves_in_its_trap(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun], signal: str
) -> None:
    """Once, whether Slurm signals the batch script or every process of the steps."""
    script = (
        "#!/bin/bash\n"
        'save() { echo saved >> "$SBTRAIN_RUN_DIR/saved-$SBTRAIN_RANK"; exit 0; }\n'
        "[[ $SBTRAIN_ATTEMPT == 0 ]] || exit 0\n"
        "trap save USR1\n"
        "echo waiting\n"
        "while :; do sleep 0.2 || :; done\n"
    )
    run = slurm_run(
        tmp_path, slurm_environment, script, partition="spot", name="train.sh", grace_s=15.0
    )
    runs.append(run)
    run.submit("--time=10", f"--signal={signal}", nodelist="g1,g2")
    run.wait_for(lambda: run.log("worker-0") and run.log("worker-1"), "both trainers")
    preemptor(run, "g1,g2")
    run.wait_for(lambda: len(run.attempts) == 2, "a second attempt", within_s=60)
    run.wait_for_state("COMPLETED", "FAILED", within_s=60)
    for rank in (0, 1):
        assert (Path(run.plan.run_dir) / f"saved-{rank}").read_text() == "saved\n"
    assert [attempt.cause for attempt in run.attempts] == ["preempted", "completed"]


def test_the_nodes_are_given_up_before_the_grace_is_over(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    run = slurm_run(
        tmp_path, slurm_environment, TRAIN, partition="spot", steps=100_000, grace_s=15.0
    )
    runs.append(run)
    run.submit(nodelist="g3,g4")
    run.wait_for_steps()
    urgent = preemptor(run, "g3,g4")
    run.wait_for(
        lambda: run.shown("JobState", urgent) in ("RUNNING", "COMPLETING", "COMPLETED"),
        "the urgent job runs",
    )
    asked, began = (
        datetime.fromisoformat(run.shown(name, urgent)) for name in ("SubmitTime", "StartTime")
    )
    assert (began - asked).total_seconds() < 15.0  # GraceTime, and KillWait would follow
    assert run.shown("Restarts") == "1"


def test_the_time_limit_saves_and_requeues(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    run = slurm_run(tmp_path, slurm_environment, TRAIN, partition="standard", steps=100_000)
    runs.append(run)
    run.submit("--time=2", "--signal=B:USR1@30", nodelist="c1,c2")
    run.wait_for_steps()
    run.wait_for(lambda: len(run.attempts) == 2, "a second attempt", within_s=130)
    run.wait_for_steps(attempt=1)
    assert_resumed_where_saved(run, cause="time-limit")


def test_scancel_is_final(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    run = slurm_run(tmp_path, slurm_environment, TRAIN, partition="spot", steps=100_000)
    runs.append(run)
    run.submit(nodelist="c3,c4")
    run.wait_for_steps()
    run.slurm(["scancel", run.job_id])
    run.wait_for_state("CANCELLED", within_s=20)
    assert run.shown("Restarts") == "0"
    (attempt,) = run.attempts
    assert attempt.cause == "cancelled"
    assert not attempt.requeued
    assert run.saved_steps == [attempt.saved_step]


def test_scancel_during_the_grace_of_a_preemption_is_final(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    run = slurm_run(
        tmp_path,
        slurm_environment,
        TRAIN.replace("def save(folder):", "def save(folder):\n        time.sleep(3)"),
        partition="spot",
        steps=100_000,
        grace_s=15.0,
    )
    runs.append(run)
    run.submit(nodelist="g1,g2")
    run.wait_for_steps()
    preemptor(run, "g1,g2", seconds=1)
    run.wait_for(lambda: "cause: preempted" in run.output, "the notice")
    run.slurm(["scancel", run.job_id])
    run.wait_for_state("CANCELLED", within_s=30)
    assert run.shown("Restarts") == "0"
    assert not run.attempts[0].requeued
    assert run.attempts[0].cause == "cancelled"
    assert run.attempts[0].saved_step in run.saved_steps


def test_one_task_of_an_array_is_requeued_alone(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    run = slurm_run(
        tmp_path,
        slurm_environment,
        TRAIN,
        partition="standard",
        nodes=1,
        workers=1,
        roles=example_plan().roles[:1],
        steps=100_000,
    )
    runs.append(run)
    run.submit("--array=0-1", "--time=10", "--signal=B:USR1@60")
    folders = [Path(run.plan.run_dir) / f"task-{task}" for task in (0, 1)]

    def steps_of(task: int, attempt: int) -> bool:
        log = folders[task] / "attempts" / str(attempt) / "worker-0.log"
        return log.exists() and "starts after step" in log.read_text()

    run.wait_for(lambda: steps_of(0, 0) and steps_of(1, 0), "steps of both tasks")
    run.slurm(["scancel", "--batch", "--signal=USR1", f"{run.job_id}_1"])
    run.wait_for(lambda: steps_of(1, 1), "a second attempt of task 1", within_s=50)
    assert run.shown("Restarts", f"{run.job_id}_1") == "1"
    assert run.shown("Restarts", f"{run.job_id}_0") == "0"
    assert not (folders[0] / "attempts" / "1").exists()


def test_without_a_grace_time_a_run_saves_between_term_and_kill(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    """As partitions are unless somebody gives them one: KillWait is all there is."""
    run = slurm_run(
        tmp_path,
        slurm_environment,
        TRAIN.replace("def save(folder):", "def save(folder):\n        time.sleep(0.5)"),
        partition="spot",
        steps=150,
        grace_s=0.0,
        kill_wait_s=5.0,
    )
    runs.append(run)
    run.slurm(["scontrol", "update", "PartitionName=spot", "GraceTime=0"])
    try:
        run.submit("--time=10", "--signal=B:USR1@60", nodelist="g1,g2")
        run.wait_for_steps()
        preemptor(run, "g1,g2")
        run.wait_for(lambda: len(run.attempts) == 2, "a second attempt", within_s=60)
        run.wait_for_state("COMPLETED", "FAILED", within_s=90)
    finally:
        run.slurm(["scontrol", "update", "PartitionName=spot", "GraceTime=15"])
    assert run.state == "COMPLETED", run.output
    first, second = run.attempts
    assert first.cause == "preempted"
    assert first.saved_step is not None
    for rank in range(run.plan.workers):
        log = run.log(f"worker-{rank}", attempt=1)
        assert f"rank {rank} attempt 1 starts after step {first.saved_step}" in log
    assert second.cause == "completed"
    assert run.shown("Restarts") == "1"
