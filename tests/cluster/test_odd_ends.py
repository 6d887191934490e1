"""Scripts that do not end by themselves, and saves that outlast the grace, on a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from counting_trainer import TRAIN
from sbtrain.slurm.ending import way_back_of
from sbtrain_jobs.run_folder import RunFolder
from slurm_runs import SlurmRun, slurm_run

pytestmark = pytest.mark.slurm

# Slurm sends it up to a minute early: of one minute, before there is anybody to hear it.
EARLY = ("--time=2", "--signal=B:USR1@30")
HANGS_AT_ITS_END = TRAIN + "print('hangs', flush=True)\ntime.sleep(1000)\n"
PREEMPTOR = (
    *("sbatch", "--parsable", "--partition=urgent", "--exclusive", "--nodes=2"),
    *("--time=1", "--output=/dev/null", "--wrap=sleep 1"),
)


def assert_complete(run: SlurmRun, *, states: tuple[str, ...] = ("COMPLETED",)) -> None:
    run.wait_for_state("COMPLETED", "FAILED", "TIMEOUT", "PREEMPTED", within_s=140)
    assert run.state in states, run.output
    assert run.shown("ExitCode") == "0:0"
    assert [(one.cause, one.exit_code) for one in run.attempts] == [("completed", 0)]
    assert run.shown("Restarts") == "0"
    assert "all steps were done and saved; the script did not end by itself" in run.output


def test_a_script_that_hangs_when_all_is_saved_is_complete_at_the_time_limit(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    run = slurm_run(
        tmp_path,
        slurm_environment,
        HANGS_AT_ITS_END,
        partition="standard",
        steps=5,
    )
    runs.append(run)
    run.submit(*EARLY, nodelist="c1,c2")
    assert_complete(run)


def test_a_script_that_hangs_in_a_step_fails_at_the_time_limit(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    run = slurm_run(
        tmp_path,
        slurm_environment,
        TRAIN.replace("weight += 1", "weight += 1; step < 3 or time.sleep(1000)"),
        partition="standard",
        steps=60,
    )
    runs.append(run)
    run.submit(*EARLY, nodelist="c3,c4")
    run.wait_for_state("COMPLETED", "FAILED", "TIMEOUT", within_s=140)
    assert run.state == "FAILED", run.output
    assert [(one.cause, one.exit_code) for one in run.attempts] == [("failed", 143)]
    assert "error: no progress in a whole attempt: it came to step 3 of 60" in run.output


def test_a_script_that_hangs_when_all_is_saved_is_complete_when_preempted(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    run = slurm_run(
        tmp_path,
        slurm_environment,
        HANGS_AT_ITS_END,
        partition="spot",
        steps=5,
        grace_s=15.0,
    )
    runs.append(run)
    run.submit(nodelist="g1,g2")
    run.wait_for(lambda: "hangs" in run.output, "the last line")
    run.slurm([*PREEMPTOR, "--nodelist=g1,g2"])
    # Slurm's word, from 24.11 on, for all that ends within the grace of a preemption.
    within_grace = () if way_back_of(run.version) == "requeue" else ("PREEMPTED",)
    assert_complete(run, states=within_grace or ("COMPLETED",))


def test_a_job_that_waits_for_such_a_run_starts(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    """Where Slurm counts COMPLETED alone, the run goes through the queue once more for that,
    and does nothing there."""
    run = slurm_run(
        tmp_path,
        slurm_environment,
        HANGS_AT_ITS_END,
        partition="spot",
        steps=5,
        grace_s=15.0,
    )
    runs.append(run)
    run.submit(nodelist="g1,g2")
    after = ["sbatch", "--parsable", f"--dependency=afterok:{run.job_id}", "--time=1"]
    waiting = run.slurm([*after, "--output=/dev/null", "--wrap=true"]).strip()
    run.wait_for(lambda: "hangs" in run.output, "the last line")
    run.slurm([*PREEMPTOR, "--nodelist=g1,g2"])
    run.wait_for(
        lambda: run.shown("JobState", waiting) == "COMPLETED", "the next job", within_s=140
    )
    assert run.state == "COMPLETED", run.output
    assert [one.cause for one in run.attempts][-1] == "completed"
    assert run.output.count("all nodes met; starting") == 1


def test_a_save_that_outlasts_the_grace_leaves_preempted_as_the_cause(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    run = slurm_run(
        tmp_path,
        slurm_environment,
        TRAIN.replace("def save(folder):", "def save(folder):\n        time.sleep(25)"),
        partition="spot",
        steps=100_000,
        grace_s=15.0,
    )
    runs.append(run)
    run.submit(nodelist="g3,g4")
    run.wait_for_steps()
    run.slurm([*PREEMPTOR, "--nodelist=g3,g4"])
    run.wait_for(lambda: len(run.attempts) == 2, "a second attempt", within_s=80)
    assert run.attempts[0].notices[-1] == "preempted"
    assert run.attempts[0].cause == "preempted"


def test_what_completes_after_such_a_preemption_stays_ended(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    """Slurm 24.11 takes the next end, too, for one within the grace, and would requeue."""
    slow_once = "def save(folder):\n        time.sleep(0 if run.attempt else 60)"
    run = slurm_run(
        tmp_path,
        slurm_environment,
        TRAIN.replace("def save(folder):", slow_once),
        partition="spot",
        steps=150,
        grace_s=15.0,
    )
    runs.append(run)
    run.submit(nodelist="g1,g2")
    run.wait_for_steps()
    run.slurm([*PREEMPTOR, "--nodelist=g1,g2"])
    run.wait_for(
        lambda: "training is complete" in run.output, "the end of the second attempt", 120
    )
    run.wait_for_state("COMPLETED", "PREEMPTED", "PENDING", within_s=20)
    assert run.state != "PENDING"
    assert (run.shown("Restarts"), run.shown("ExitCode")) == ("1", "0:0")
    assert [one.cause for one in run.attempts] == ["preempted", "completed"]


def test_a_run_that_runs_is_not_begun_by_another_job(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    run = slurm_run(tmp_path, slurm_environment, TRAIN, partition="standard", steps=400)
    runs.append(run)
    run.submit(nodelist="c1,c2")
    run.wait_for_steps()
    words = ["sbatch", "--parsable", "--partition=standard", "--nodelist=c3,c4", "--time=5"]
    script = str(RunFolder(path=Path(run.plan.run_dir)).job_script)
    again = run.slurm([*words, f"--output={tmp_path}/again.out", script]).strip()
    run.wait_for(lambda: run.shown("JobState", again) == "FAILED", "the second job")
    assert run.shown("ExitCode", again) == "21:0"
    said = (tmp_path / "again.out").read_text()
    assert f"job {run.job_id} runs {run.plan.run_id} now (running)" in said
    run.wait_for_state("COMPLETED", "FAILED")
    assert "training is complete" in run.output
    assert [(one.cause, one.job_id) for one in run.attempts] == [("completed", run.job_id)]
    third = run.slurm([*words, f"--output={tmp_path}/third.out", script]).strip()
    run.wait_for(lambda: run.shown("JobState", third) == "COMPLETED", "the third job")
    assert [one.job_id for one in run.attempts] == [run.job_id, third]
