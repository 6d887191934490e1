"""Ends that are not what was planned: a script that hangs after its last step or in one, one
that leaves its loop early, a cause that is known late."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from counting_trainer import TRAIN
from supervised_runs import SupervisedRun, supervised_run

USR1, TERM = signal.SIGUSR1, signal.SIGTERM
DONE = "all steps were done and saved; the script did not end by itself"
SHORT_WARNING = ("--signal=B:USR1@9",)  # 4 s to save in
IN_A_STEP = "weight += 1; print('at', step, flush=True)"

MakeRun = Callable[..., SupervisedRun]


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[MakeRun]:
    runs: list[SupervisedRun] = []

    def make(script: str = TRAIN, **changes: object) -> SupervisedRun:
        run = supervised_run(tmp_path, script, **changes)
        runs.append(run)
        return run

    yield make
    for run in runs:
        run.stop()


def hangs_in_step_3() -> str:
    return TRAIN.replace("weight += 1", f"{IN_A_STEP}; step < 3 or time.sleep(600)")


# -- hanging ---------------------------------------------------------------------------


@pytest.mark.parametrize("cause", ["time-limit", "preempted", "none"])
@pytest.mark.parametrize("place", ["after the with block", "within it"])
def test_a_script_that_hangs_when_all_is_saved_is_complete(
    make_run: MakeRun, cause: str, place: str
) -> None:
    hang = "print('hangs', flush=True); time.sleep(600)\n"
    script = TRAIN + ("    " if place == "within it" else "") + hang
    run = make_run(script, steps=3, grace_s=4.0, sbatch_options=SHORT_WARNING)
    run.start()
    run.wait_for(lambda: "hangs" in run.output and "hangs" in run.log("worker-1"))
    run.say_cause(cause)
    run.signal(USR1)
    assert run.wait() == 0, run.output
    assert f"sbtrain: {DONE}" in run.output
    assert "not saved" not in run.output
    assert run.requeues == []
    assert (run.last("ended").cause, run.last("ended").exit_code) == ("completed", 0)
    assert run.last("ended").detail == DONE
    assert run.saved_steps == [3]


def test_slurms_last_signal_ends_a_complete_run_at_once(make_run: MakeRun) -> None:
    run = make_run(TRAIN + "print('hangs', flush=True); time.sleep(600)\n", steps=3)
    run.start()
    run.wait_for(lambda: "hangs" in run.output and "hangs" in run.log("worker-1"))
    run.say_cause("time-limit")
    run.signal(USR1)  # a minute before the end, as far as the plan knows
    time.sleep(3.0)
    run.signal(TERM)
    assert run.wait(30) == 0, run.output
    assert run.last("ended").cause == "completed"


def test_what_slurm_restarts_though_it_was_complete_ends_at_once(make_run: MakeRun) -> None:
    run = make_run(TRAIN + "time.sleep(600)\n", steps=3, grace_s=4.0)
    run.start()
    run.wait_for(lambda: run.saved_steps)
    time.sleep(1.0)
    run.say_cause("preempted")
    run.signal(USR1)
    assert run.wait() == 0, run.output
    run.say_cause("none")
    run.start(restart_count=1)
    assert run.wait() == 0, run.output
    assert "nothing is left to do" in run.output
    assert run.log("worker-0", attempt=1) == ""
    assert run.last("ended").cause == "completed"


def test_a_script_that_hangs_in_a_step_is_not_requeued_at_the_time_limit(
    make_run: MakeRun,
) -> None:
    run = make_run(hangs_in_step_3(), steps=20, sbatch_options=SHORT_WARNING)
    run.start()
    run.wait_for(lambda: "at 3" in run.output and "at 3" in run.log("worker-1"))
    run.say_cause("time-limit")
    run.signal(USR1)
    assert run.wait() == 143, run.output
    assert (
        "error: no progress in a whole attempt: it came to step 3 of 20, and nothing was saved "
        "beyond step 0" in run.output
    )
    assert run.requeues == []
    assert run.last("ended").cause == "failed"
    assert run.last("ended").detail.startswith("error: no progress")


def test_a_script_that_hangs_later_than_its_last_save_is_requeued_once(
    make_run: MakeRun,
) -> None:
    run = make_run(
        hangs_in_step_3(), steps=20, checkpoint_interval_s=0.01, sbatch_options=SHORT_WARNING
    )
    run.say_cause("time-limit")

    def end_of(attempt: int) -> int:
        run.start(restart_count=attempt)
        run.wait_for(lambda: "at 3" in run.log("worker-0", attempt=attempt))
        run.wait_for(lambda: "at 3" in run.log("worker-1", attempt=attempt))
        run.signal(USR1)
        return run.wait()

    assert end_of(0) == 85, run.output
    assert run.requeues == ["7"]
    assert end_of(1) == 143, run.output
    assert run.requeues == ["7"]
    assert "came to step 3 of 20, and nothing was saved beyond step 2" in run.output


def test_a_preemption_that_strikes_before_any_save_is_requeued(make_run: MakeRun) -> None:
    run = make_run(hangs_in_step_3(), steps=20, grace_s=3.0, sbatch_options=SHORT_WARNING)
    run.start()
    run.wait_for(lambda: "at 3" in run.output)
    run.say_cause("preempted")
    run.signal(USR1)
    time.sleep(2.0)
    run.say_cause("requeued")
    run.signal(TERM)
    assert run.wait() == 85, run.output
    assert run.last("ended").cause == "preempted"


# -- leaving early ---------------------------------------------------------------------

LEAVES = {
    "break": ("if step == 5: break", "ended after step 5 of 60"),
    "exit": ("if step == 5: raise SystemExit(0)", "ended after step 5 of 60"),
    "os exit": ("if step == 5: os._exit(0)", "ended after step 0 of 60 (the last it told of)"),
}


@pytest.mark.parametrize("how", sorted(LEAVES))
def test_a_script_that_leaves_its_loop_early_is_said(make_run: MakeRun, how: str) -> None:
    line, said = LEAVES[how]
    script = "import os\n" + TRAIN.replace("weight += 1\n", f"weight += 1\n        {line}\n")
    run = make_run(script, steps=60)
    run.start()
    assert run.wait() == 0, run.output
    known = "not known to be" if "told of" in said else "not"
    assert f"sbtrain: warning: training is {known} complete: {said}" in run.output
    assert "training is complete" not in run.output
    assert run.last("ended").cause == "completed"
    assert run.last("ended").detail == said


def test_a_script_that_ends_before_its_first_step_is_said(make_run: MakeRun) -> None:
    run = make_run(TRAIN.replace("weight = 0\n", "raise SystemExit(0)\n"), steps=60)
    run.start()
    assert run.wait() == 0, run.output
    said = "no step of run.steps() was begun, 60 were planned"
    assert run.last("ended").detail == said


def test_a_worker_that_leaves_while_the_chief_goes_on_is_said(make_run: MakeRun) -> None:
    line = "if step == 5 and run.rank == 1: break"
    script = TRAIN.replace("weight += 1\n", f"weight += 1\n        {line}\n")
    run = make_run(script, steps=40, step_s=0.1)
    run.start()
    run.wait_for(lambda: "warning: worker 1 left after step 5 of 40" in run.output)
    assert run.wait() == 0, run.output
    assert run.last("ended").detail == "worker 1 left after step 5 of 40"


def test_a_script_that_never_joins_has_no_steps(make_run: MakeRun) -> None:
    run = make_run("print('done')", steps=60)
    run.start()
    assert run.wait() == 0, run.output
    assert "sbtrain: all 2 trainers ended with exit status 0" in run.output
    assert "complete" not in run.output
    assert "warning" not in run.output
    assert run.last("ended").detail == ""


# -- the rest --------------------------------------------------------------------------


def test_a_cause_that_slurm_says_late_is_still_recorded(make_run: MakeRun) -> None:
    slow = TRAIN.replace("def save(folder):", "def save(folder):\n        time.sleep(8)")
    run = make_run(slow, steps=100_000)
    run.start()
    run.wait_for(lambda: "sbtrain: step " in run.output)
    run.say_cause("error")
    run.signal(USR1)
    run.wait_for(lambda: "cause: Slurm does not say why (scontrol did not answer" in run.output)
    run.say_cause("preempted")
    run.wait_for(lambda: "cause: preempted" in run.output)
    run.say_cause("error")
    run.stop()  # Slurm kills it before it can write its end
    assert [entry.cause for entry in run.ledger if entry.event == "notice"] == [
        "unknown",
        "preempted",
    ]
    run.say_cause("none")
    run.start(restart_count=1)
    run.wait_for(lambda: "ended" in run.events())
    assert run.last("ended").cause == "preempted"


def test_the_scripts_last_lines_come_before_the_word_that_it_is_complete(
    make_run: MakeRun,
) -> None:
    run = make_run(TRAIN + "print('the last line', flush=True)\n", steps=3)
    run.environ["FAKE_SRUN_LATE_S"] = "0.5"
    run.start()
    assert run.wait() == 0, run.output
    assert run.output.index("the last line") < run.output.index("training is complete")


def test_the_word_that_it_is_complete_waits_no_longer_than_a_second(
    make_run: MakeRun,
) -> None:
    run = make_run(steps=3)
    run.environ["FAKE_SRUN_LATE_S"] = "4"
    run.start()
    run.wait_for(lambda: "training is complete" in run.output)
    assert "srun is late" not in run.output
    assert run.wait() == 0, run.output
