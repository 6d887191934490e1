"""Steps of a script that starts its ranks itself, and of which none joins: hooks tell them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from test_script_phases import MakeRun, make_run, shell

from sbtrain_jobs.hooks.witness import Witness
from sbtrain_jobs.node_agent.trainer_command import HOOKS
from sbtrain_perf.timing_log import AttemptTimings, read_timing_log
from supervised_runs import SupervisedRun

__all__ = ["make_run"]

STEPS = """\
import sys, time
from sbtrain_jobs.hooks.step_times import Trained, step_times
for step in range(int(sys.argv[1])):
    step_times().end("own", lambda _: Trained(10, 2), None)
    time.sleep(0.02)
"""


def steps(count: int, *, ranks: int = 0) -> str:
    """As a framework's hooks would tell; alone where no rank is started."""
    launcher = f"srun --ntasks={ranks} " if ranks else ""
    return f"{launcher}{sys.executable} $SBTRAIN_SCRIPT_DIR/steps.py {count}"


def timings(make_run: MakeRun, *lines: str, **changes: object) -> tuple[SupervisedRun, Path]:
    run = make_run(shell(*lines), **changes)
    (run.folder / "steps.py").write_text(STEPS)
    run.start()
    assert run.wait() == 0, run.output
    return run, run.run_dir / "attempts/0/timings.h5"


def told(make_run: MakeRun, *lines: str) -> AttemptTimings:
    run, log = timings(make_run, *lines)
    assert "sbtrain: step" not in run.output  # it is the script's own affair
    return read_timing_log(log)


def test_all_ranks_of_its_world_are_timed(make_run: MakeRun) -> None:
    found = told(make_run, steps(9, ranks=2))
    assert [one.rank for one in found.ranks] == [0, 1]
    for one in found.ranks:
        assert one.step.tolist() == list(range(2, 10))  # of the first nobody saw the beginning
        assert all(0.02 <= seconds < 2.0 for seconds in one.seconds)
    assert (found.plan.workers, found.plan.servers, found.plan.layout) == (2, 0, "allreduce")
    assert [role.node for role in found.plan.roles] == [0, 1]
    assert (found.described("parameters"), found.described("tensors")) == (10.0, 2.0)
    assert len(found.named("start")) == 2


def test_a_program_that_the_script_runs_alone_is_a_world_of_one(make_run: MakeRun) -> None:
    found = told(make_run, steps(4))
    assert [one.step.tolist() for one in found.ranks] == [[2, 3, 4]]
    assert found.plan.workers == 1


def test_a_later_world_is_not_counted_as_the_first(make_run: MakeRun) -> None:
    found = told(make_run, steps(3, ranks=2), steps(7))
    assert [one.step.tolist() for one in found.ranks] == [[2, 3], [2, 3]]


def test_what_takes_no_step_leaves_no_timing_log(make_run: MakeRun) -> None:
    _, log = timings(make_run, steps(0, ranks=2))
    assert not log.exists()


@pytest.mark.parametrize("hooks", [True, False])
def test_any_python_of_the_script_looks_for_frameworks(
    make_run: MakeRun, *, hooks: bool
) -> None:
    """Also one that another one starts, as torchrun does; they can be switched off."""
    sees = "import sys; print(type(sys.meta_path[0]).__name__)"
    program = f"{sys.executable} -c '{sees}'"
    starts = f"import subprocess; subprocess.run([{sys.executable!r}, '-c', {sees!r}])"
    lines = (f"{program} > seen", f'{sys.executable} -c "{starts}" >> seen')
    run, _ = timings(make_run, *lines, "echo $PYTHONPATH > path", hooks=hooks)
    seen = (run.run_dir / "seen").read_text().split()
    assert [one == "FirstImport" for one in seen] == [hooks, hooks]
    path = (run.run_dir / "path").read_text().strip().split(os.pathsep)
    assert (path[0] == HOOKS) is hooks


def test_it_says_which_rank_of_which_world_it_is() -> None:
    environ = {"SBTRAIN_CONTROL": "127.0.0.1:1", "SBTRAIN_TOKEN": "t", "SLURM_NODEID": "1"}
    torchrun = {"RANK": "5", "WORLD_SIZE": "8", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    assert Witness({**environ, **torchrun}).rank == 5
    step = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_NTASKS": "4"}
    assert Witness({**environ, **step}).rank == 3
    assert Witness(environ).rank == 0
