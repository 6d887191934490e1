"""Ranks that meet through MPI: srun's plugin by the library of the user's Python, one agent a
rank, and what is said where they would not meet. srun is played."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.run_folder import AttemptFolder
from sbtrain_jobs.supervisor.mpi_launch import mpi_launch
from sbtrain_jobs.supervisor.trainer_log import aborted_through_mpi
from sbtrain_perf.request import Role
from supervised_runs import FAKES, SupervisedRun, supervised_run

FOUR = tuple(Role(name="worker", index=i, node=i // 2) for i in range(4))
SLEEPS = "import time; time.sleep(600)\n"


@pytest.fixture
def made() -> Iterator[list[SupervisedRun]]:
    runs: list[SupervisedRun] = []
    yield runs
    for run in runs:
        run.stop()


def mpi_run(made: list[SupervisedRun], folder: Path, script: str) -> SupervisedRun:
    run = supervised_run(folder, script, framework="mpi", workers=4, roles=FOUR)
    made.append(run)
    return run


def users_python(folder: Path, says: str) -> dict[str, str]:
    """The environment of a user whose Python loads this MPI, where srun is played."""
    (folder / "bin").mkdir()
    for name, text in (
        ("python3", f"#!/bin/sh\nprintf '{says}\\n\\n'\n"),
        ("srun", f'#!/bin/sh\nexec {sys.executable} {FAKES / "srun.py"} "$@"\n'),
    ):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    path = f"{folder}/bin{os.pathsep}{os.environ['PATH']}"
    return {"VIRTUAL_ENV": str(folder), "PATH": path, "FAKE_SRUN_MPI": "none,pmi2,pmix,pmix_v4"}


@pytest.mark.parametrize(
    ("library", "plugin"),
    [
        ("MPICH Version: 5.0.2", "pmi2"),
        ("Intel(R) MPI Library 2021.9", "pmi2"),
        ("Open MPI v5.0.11, package: Open MPI", "pmix"),
        ("", "pmi2"),  # it does not say: as the plan has it
    ],
)
def test_the_plugin_fits_the_library_of_the_users_python(
    tmp_path: Path, library: str, plugin: str
) -> None:
    environ = users_python(tmp_path, library)
    plan = supervised_run(tmp_path, SLEEPS, framework="mpi").plan
    assert mpi_launch(plan, environ).plugin == plugin
    assert mpi_launch(plan, {**environ, "SLURM_MPI_TYPE": "pmix_v4"}).plugin == "pmix_v4"


def test_the_sites_own_plugin_wins(tmp_path: Path) -> None:
    environ = users_python(tmp_path, "MPICH") | {"FAKE_SRUN_MPI": "cray_shasta,pmi2"}
    plan = supervised_run(tmp_path, SLEEPS, framework="mpi", mpi_plugin="cray_shasta").plan
    assert mpi_launch(plan, environ).plugin == "cray_shasta"


def test_a_horovod_without_mpi_is_not_started(tmp_path: Path) -> None:
    plan = supervised_run(tmp_path, SLEEPS, framework="horovod").plan
    with pytest.raises(LaunchError, match="built without MPI") as caught:
        mpi_launch(plan, users_python(tmp_path, "no MPI"))
    assert "HOROVOD_WITH_MPI=1" in caught.value.hint


def test_an_srun_without_the_plugin_ends_the_run_at_once(
    made: list[SupervisedRun], tmp_path: Path
) -> None:
    run = mpi_run(made, tmp_path, SLEEPS)
    run.environ = users_python(tmp_path, "Open MPI v5.0.11")
    run.environ["FAKE_SRUN_MPI"] = "none,pmi2"
    run.start()
    assert run.wait(within_s=60) == LaunchError.exit_code
    assert "Open MPI v5.0.11 needs srun --mpi=pmix" in run.output
    assert "each rank would be a world of one" in run.output
    assert run.last("ended").cause == "launch-failed"


def test_a_plugin_that_srun_cannot_load_ends_the_run_at_once(
    made: list[SupervisedRun], tmp_path: Path
) -> None:
    """--mpi=list names pmix also where the library that it needs is not installed."""
    run = mpi_run(made, tmp_path, SLEEPS)
    run.environ = {"FAKE_SRUN_EXIT": "1"}
    run.start()
    assert run.wait(within_s=60) == LaunchError.exit_code
    assert "srun ended with exit status 1 before all agents had met" in run.output
    assert "use an MPI that this Slurm can start" in run.output


def test_each_rank_has_an_agent_of_its_own(made: list[SupervisedRun], tmp_path: Path) -> None:
    run = mpi_run(
        made,
        tmp_path,
        "import os\n"
        "print(*(os.environ[name] for name in ('RANK', 'SLURM_PROCID', 'SLURM_LOCALID',\n"
        "      'SBTRAIN_NODE', 'SLURMD_NODENAME', 'SLURM_NTASKS')), os.getppid())\n",
    )
    run.start()
    assert run.wait() == 0, run.output
    said = [run.log(f"worker-{rank}").split() for rank in range(4)]
    assert [words[:6] for words in said] == [
        ["0", "0", "0", "0", "c1", "4"],
        ["1", "1", "1", "0", "c1", "4"],
        ["2", "2", "0", "1", "c2", "4"],
        ["3", "3", "1", "1", "c2", "4"],
    ]
    assert len({words[6] for words in said}) == 4


def test_a_rank_that_fails_ends_the_others_with_its_status(
    made: list[SupervisedRun], tmp_path: Path
) -> None:
    run = mpi_run(
        made,
        tmp_path,
        f"import os, sys\nif os.environ['RANK'] == '3':\n    sys.exit(37)\n{SLEEPS}",
    )
    run.start()
    assert run.wait() == 37
    assert "worker 3 on node c2 ended with exit status 37" in run.output


def test_a_task_that_does_not_come_is_named_by_its_node(
    made: list[SupervisedRun], tmp_path: Path
) -> None:
    run = mpi_run(made, tmp_path, SLEEPS)
    run.environ = {"FAKE_SRUN_SKIP": "3", "FAKE_MEET_WITHIN_S": "25"}
    run.start()
    run.wait()
    assert "no word from c2" in run.output


def test_a_preempted_world_has_its_time_and_comes_back(
    made: list[SupervisedRun], tmp_path: Path
) -> None:
    script = (
        "import signal, sys\n"
        "def save(*_):\n    print('saved', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGUSR1, save)\nprint('on', flush=True)\n"
        f"{SLEEPS}"
    )
    run = mpi_run(made, tmp_path, script)
    run.start()
    run.wait_for(lambda: all("on" in run.log(f"worker-{rank}") for rank in range(4)))
    run.say_cause("preempted")
    run.signal(signal.SIGUSR1)
    assert run.wait() == 85, run.output
    assert all("saved" in run.log(f"worker-{rank}") for rank in range(4))
    assert run.requeues == ["7"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("Abort(3) on node 1: application called MPI_Abort(MPI_COMM_WORLD, 3) - process 1", 3),
        ("MPI_ABORT was invoked on rank 1 in MPI_COMM_WORLD\nwith errorcode 4.\n", 4),
        ("nothing of the kind", 0),
    ],
)
def test_the_log_tells_who_called_mpi_abort(tmp_path: Path, words: str, code: int) -> None:
    folder = AttemptFolder(path=tmp_path)
    folder.trainer_log("worker-0").write_text("fine\n")
    folder.trainer_log("worker-1").write_text(words)
    ends = [(1, code), (0, -signal.SIGKILL)] if code else []
    assert aborted_through_mpi(folder, ("worker-0", "worker-1")) == ends
