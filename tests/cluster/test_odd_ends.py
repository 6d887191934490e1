"""Scripts that do not end by themselves, and saves that outlast the grace, on a real Slurm."""

from __future__ import annotations

from pathlib import Path

import pytest

from counting_trainer import TRAIN
from slurm_runs import SlurmRun, slurm_run

pytestmark = pytest.mark.slurm

EARLY = "--signal=B:USR1@30"
HANGS_AT_ITS_END = TRAIN + "print('hangs', flush=True)\ntime.sleep(1000)\n"
PREEMPTOR = (
    *("sbatch", "--parsable", "--partition=urgent", "--exclusive", "--nodes=2"),
    *("--time=1", "--output=/dev/null", "--wrap=sleep 1"),
)


def assert_complete(run: SlurmRun) -> None:
    run.wait_for_state("COMPLETED", "FAILED", "TIMEOUT", "PREEMPTED", within_s=75)
    assert run.state == "COMPLETED", run.output
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
    run.submit("--time=1", EARLY, nodelist="c1,c2")
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
    run.submit("--time=1", EARLY, nodelist="c3,c4")
    run.wait_for_state("COMPLETED", "FAILED", "TIMEOUT", within_s=75)
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
    assert_complete(run)


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
