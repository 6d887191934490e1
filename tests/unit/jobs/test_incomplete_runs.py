"""Runs that end well and are not complete: ranks that stay away, saves that are none, worlds
apart. Each under the real supervisor, with real trainers."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from counting_trainer import TRAIN
from sbtrain_jobs.errors import CheckpointError, LaunchError
from supervised_runs import SupervisedRun, supervised_run

USR1 = signal.SIGUSR1
COMPLETE = "training is complete"
DONE = "all steps were done and saved"

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


def rank_does(rank: int, what: str) -> str:
    """The counting script, in which one rank does something else before it joins."""
    only = f"import os, time\nif os.environ['SBTRAIN_RANK'] == '{rank}':\n    {what}\n"
    return only + TRAIN


# -- ranks that stay away --------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_ends_well_before_joining_ends_the_run(
    make_run: MakeRun, rank: int
) -> None:
    run = make_run(rank_does(rank, "raise SystemExit(0)"), steps=100_000)
    run.start()
    assert run.wait() == LaunchError.exit_code, run.output
    assert (
        f"error: worker {rank} ended with exit status 0 without joining the run in which "
        f"worker {1 - rank} runs steps" in run.output
    )
    assert "run.is_chief" in run.output
    assert COMPLETE not in run.output
    assert run.last("ended").cause == "failed"
    assert run.requeues == []


def test_a_rank_that_never_joins_is_never_called_complete_however_short_the_run(
    make_run: MakeRun,
) -> None:
    run = make_run(rank_does(1, "raise SystemExit(0)"), steps=2, step_s=0.01)
    run.start()
    assert run.wait() in (0, LaunchError.exit_code), run.output
    assert COMPLETE not in run.output
    assert "nothing was heard of worker 1" in run.output or "without joining" in run.output


def test_a_rank_that_is_late_does_not_resume_from_what_the_others_saved(
    make_run: MakeRun, tmp_path: Path
) -> None:
    saved = "while not any(pathlib.Path(os.environ['SBTRAIN_CHECKPOINT_DIR']).glob('step-*')):"
    run = make_run(rank_does(1, f"import pathlib\n    {saved} time.sleep(0.1)"), steps=3)
    run.start()
    assert run.wait() == 0, run.output
    assert "rank 1 attempt 0 starts after step 0" in run.log("worker-1")
    assert COMPLETE in run.output


def test_a_rank_that_sleeps_before_joining_is_noticed_and_the_run_never_complete(
    make_run: MakeRun,
) -> None:
    run = make_run(
        rank_does(1, "time.sleep(600)"),
        steps=10,
        grace_s=3.0,
        sbatch_options=("--signal=B:USR1@9",),
    )
    run.environ["FAKE_BEGIN_WITHIN_S"] = "2"
    run.start()
    said = (
        "warning: no step of worker 1 was heard of within 2 s of the first of worker 0; "
        "not joined, as far as is known: worker 1"
    )
    run.wait_for(lambda: said in run.output)
    run.wait_for(lambda: 10 in run.saved_steps)
    time.sleep(1.0)
    run.say_cause("time-limit")
    run.signal(USR1)
    assert run.wait() == 85, run.output
    assert COMPLETE not in run.output
    assert DONE not in run.output
    assert "(time-limit; step 10 saved)" in run.output
    run.start(restart_count=1)
    run.wait_for(lambda: "starts after step 10" in run.log("worker-0", attempt=1))
    time.sleep(1.0)
    run.signal(USR1)
    assert run.wait() == 143, run.output
    assert (
        "nothing was saved beyond step 10; not joined, as far as is known: worker 1"
        in run.output
    )
    assert COMPLETE not in run.output


def test_a_run_that_only_the_chief_joins_is_no_failure(make_run: MakeRun) -> None:
    """All ranks train together by other means; the chief alone joins, to save."""
    until_saved = (
        "import pathlib; there = pathlib.Path(os.environ['SBTRAIN_RUN_DIR'])\n"
        "    while not list(there.rglob('checkpoints/step-10')): time.sleep(0.05)\n"
        "    raise SystemExit(0)"
    )
    run = make_run(rank_does(1, until_saved), steps=10)
    run.start()
    assert run.wait() == 0, run.output
    said = "nothing was heard of worker 1"
    assert f"warning: training is not known to be complete: {said}" in run.output
    assert COMPLETE not in run.output
    assert run.last("ended").detail == said


def test_a_hang_of_another_rank_is_not_called_done(make_run: MakeRun) -> None:
    """Worker 0 has done and saved all, worker 1 hangs in a step."""
    script = TRAIN.replace("weight += 1", "weight += 1; run.rank and time.sleep(600)")
    run = make_run(script, steps=5, grace_s=3.0, sbatch_options=("--signal=B:USR1@7",))
    run.start()
    run.wait_for(lambda: 5 in run.saved_steps)
    time.sleep(1.0)
    run.say_cause("preempted")
    run.signal(USR1)
    run.wait_for(lambda: "step 5 is saved, but trainers have not ended within" in run.output)
    run.say_cause("requeued")
    run.signal(signal.SIGTERM)
    assert run.wait(90) == 85, run.output
    assert DONE not in run.output
    assert "not saved" not in run.output
    assert run.last("ended").cause == "preempted"


# -- saves that are none ---------------------------------------------------------------

LAST_SAVES = {
    "sys.exit": ("raise SystemExit(0)", CheckpointError.exit_code, "ended the process while"),
    "error": ("raise ValueError('my own')", 1, "my own"),
    "empty": ("return", CheckpointError.exit_code, "saved nothing for step 3"),
    "os._exit": (
        "import os; os._exit(0)",
        0,
        "complete: the state after step 3 of 3 (the last",
    ),
}


@pytest.mark.parametrize("how", sorted(LAST_SAVES))
def test_a_last_save_that_saves_nothing_is_not_complete(make_run: MakeRun, how: str) -> None:
    line, code, said = LAST_SAVES[how]
    script = TRAIN.replace("def save(folder):", f"def save(folder):\n        {line}")
    # The chief waits a little, so that its steps are reported before it is gone.
    script = script.replace("def save(folder):", "def save(folder):\n        time.sleep(1.5)")
    run = make_run(script, steps=3)
    run.start()
    assert run.wait() == code, run.output
    assert said in run.output
    assert COMPLETE not in run.output
    assert "sbtrain: saved" not in run.output
    assert run.saved_steps == []


def test_leaving_the_loop_in_its_last_step_saves_nothing_and_is_not_complete(
    make_run: MakeRun,
) -> None:
    run = make_run(
        TRAIN.replace("weight += 1", "weight += 1\n        if step == 3: break"), steps=3
    )
    run.start()
    assert run.wait() == 0, run.output
    assert "training is not complete: the state after step 3 of 3 is not saved" in run.output
    assert COMPLETE not in run.output


def test_steps_without_a_save_are_not_called_complete_nor_saved(make_run: MakeRun) -> None:
    script = TRAIN.replace(", save=save", "")
    run = make_run(script, steps=3)
    run.start()
    assert run.wait() == 0, run.output
    assert "all 3 steps are done; run.steps() was given no save" in run.output
    assert COMPLETE not in run.output


def test_a_hang_after_steps_without_a_save_is_not_called_saved(make_run: MakeRun) -> None:
    """It may be writing what it learnt by itself."""
    script = TRAIN.replace(", save=save", "") + "print('writes', flush=True); time.sleep(600)\n"
    run = make_run(script, steps=3, grace_s=3.0, sbatch_options=("--signal=B:USR1@7",))
    run.start()
    run.wait_for(lambda: "writes" in run.output and "writes" in run.log("worker-1"))
    run.say_cause("time-limit")
    run.signal(USR1)
    assert run.wait() == 85, run.output
    assert DONE not in run.output
    assert "requeueing job 7 (time-limit)\n" in run.output


# -- worlds apart ----------------------------------------------------------------------

FRAMEWORKS = {
    "horovod.torch": "def is_initialized(): return True\ndef size(): return SIZE\n",
    "torch.distributed": (
        "def is_available(): return True\ndef is_initialized(): return True\n"
        "def get_world_size(): return SIZE\n"
    ),
}


def with_framework(run: SupervisedRun, name: str, *, size: int) -> None:
    """A stand-in for a package that is not installed, whose ranks see a world of `size`."""
    package, module = name.split(".")
    (run.folder / package).mkdir()
    (run.folder / package / "__init__.py").touch()
    text = FRAMEWORKS[name].replace("SIZE", str(size))
    (run.folder / package / f"{module}.py").write_text(text)


@pytest.mark.parametrize("name", sorted(FRAMEWORKS))
@pytest.mark.parametrize(
    ("size", "code", "said"),
    [
        (1, LaunchError.exit_code, "sees a world of 1, the plan has 2 workers"),
        (2, 0, COMPLETE),
        (4, 0, "training is not complete: "),
    ],
)
def test_a_framework_whose_world_is_not_the_plans(
    make_run: MakeRun, name: str, size: int, code: int, said: str
) -> None:
    run = make_run(f"import {name}\n{TRAIN}", steps=3)
    with_framework(run, name, size=size)
    run.start()
    assert run.wait() == code, run.output
    assert said in run.output
    assert ("--train-layout mpi" in run.output) == (size == 1), "what to do"
    assert (COMPLETE in run.output) == (size == 2)
    assert bool(run.saved_steps) == (size > 1)


def test_worlds_of_one_by_mpi4py_are_not_complete(make_run: MakeRun) -> None:
    pytest.importorskip("mpi4py.MPI")
    run = make_run("from mpi4py import MPI\n" + TRAIN, steps=3)
    run.start()
    assert run.wait() == 0, run.output
    said = "mpi4py sees a world of 1, the plan has 2 workers"
    assert f"{said}: they do not train together" in run.output
    assert f"warning: training is not complete: {said}" in run.output
    assert COMPLETE not in run.output


def test_mpi4py_that_is_loaded_in_the_last_step_counts_too(make_run: MakeRun) -> None:
    pytest.importorskip("mpi4py.MPI")
    script = TRAIN.replace("weight += 1", "weight += 1\n        from mpi4py import MPI")
    run = make_run(script, steps=3)
    run.start()
    assert run.wait() == 0, run.output
    assert "training is not complete: mpi4py sees a world of 1" in run.output


def test_mpi4py_that_the_script_imports_itself_counts_beside_other_frameworks(
    make_run: MakeRun,
) -> None:
    pytest.importorskip("mpi4py.MPI")
    run = make_run("import jax\nfrom mpi4py import MPI\n" + TRAIN, steps=3)
    (run.folder / "jax.py").touch()
    run.start()
    assert run.wait() == 0, run.output
    assert "training is not complete: mpi4py sees a world of 1" in run.output


@pytest.mark.parametrize("helper", ["mine.py", "mine/world.py"])
def test_mpi4py_that_a_helper_of_the_script_imports_counts_too(
    make_run: MakeRun, helper: str
) -> None:
    pytest.importorskip("mpi4py.MPI")
    name = helper.removesuffix(".py").replace("/", ".")
    run = make_run(f"import jax, {name}\n" + TRAIN, steps=3)
    (run.folder / "jax.py").touch()
    (run.folder / helper).parent.mkdir(exist_ok=True)
    (run.folder / helper).write_text("def size():\n    from mpi4py import MPI\nsize()\n")
    run.start()
    assert run.wait() == 0, run.output
    assert "training is not complete: mpi4py sees a world of 1" in run.output


def test_ranks_that_resume_from_different_steps_are_said(make_run: MakeRun) -> None:
    script = TRAIN.replace("run.resume(load)", "run.resume(load) if run.rank == 0 else 0")
    run = make_run(
        script.replace("assert weight == start", "assert run.rank or True"), steps=80
    )
    run.start()
    run.wait_for(lambda: "sbtrain: step " in run.output)
    run.say_cause("preempted")
    run.signal(USR1)
    assert run.wait() == 85, run.output
    saved = run.saved_steps[-1]
    run.say_cause("none")
    run.start(restart_count=1)
    assert run.wait() == 0, run.output
    orders = (
        f"worker 0 began after step {saved}, worker 1 after step 0",
        f"worker 1 began after step 0, worker 0 after step {saved}",
    )
    assert any(f"training is not complete: {words}" in run.output for words in orders)
    assert COMPLETE not in run.output


def test_two_processes_of_one_rank_are_said(make_run: MakeRun) -> None:
    """As where the script starts several processes a node, and each joins."""
    twice = (
        "import os, subprocess, sys\n"
        "if os.environ['SBTRAIN_RANK'] == '1' and len(sys.argv) == 1:\n"
        "    both = [subprocess.Popen([sys.executable, __file__, 'child']) for _ in range(2)]\n"
        "    sys.exit(max(one.wait() for one in both))\n"
    )
    run = make_run(twice + TRAIN, steps=40)
    run.start()
    assert run.wait() == 0, run.output
    assert "warning: more than one process joined as worker 1" in run.output
    assert COMPLETE not in run.output
    assert "complete: more than one process joined as worker 1" in run.output


def test_mpi4py_beside_a_framework_that_may_connect_the_ranks_tells_nothing(
    make_run: MakeRun,
) -> None:
    pytest.importorskip("mpi4py.MPI")
    run = make_run("import jax\n" + TRAIN, steps=3)
    (run.folder / "jax.py").write_text("from mpi4py import MPI\n")
    run.start()
    assert run.wait() == 0, run.output
    assert COMPLETE in run.output
    assert "warning" not in run.output


MPI_PROGRAM = (
    "from mpi4py import MPI\nworld = MPI.COMM_WORLD\n"
    "print(f'rank {world.rank} of {world.size}', flush=True)\n"
)


def test_an_mpi_program_whose_ranks_are_worlds_of_one_is_never_complete(
    make_run: MakeRun,
) -> None:
    pytest.importorskip("mpi4py.MPI")
    run = make_run(MPI_PROGRAM, framework="mpi")
    run.start()
    assert run.wait() == LaunchError.exit_code, run.output
    assert "is in a world of 1 rank (MPI), the plan has 2 workers" in run.output
    assert run.last("ended").cause == "failed"
    assert "complete" not in run.output
