"""What is slipped into a rank's Python: harmless to any program, at work in the rank alone."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from older_pythons import IMPORT_PATH
from played_supervisor import PlayedSupervisor
from sbtrain_jobs.hooks.witness import Witness
from sbtrain_jobs.node_agent.trainer_command import HOOKS
from sbtrain_jobs.process import CommandResult, run_command
from sbtrain_jobs.wire.messages import (
    Formed,
    Forming,
    Hello,
    Message,
    ScriptOver,
    StepsDone,
)

OF_A_RANK = {
    "SBTRAIN_ROLE": "worker",
    "SBTRAIN_RANK": "1",
    "SBTRAIN_NODE": "1",
    "SBTRAIN_TOKEN": "t",
    "SBTRAIN_JOB_ID": "7",
    "SLURM_JOB_ID": "7",
}
SEES = "import sys; print(type(sys.meta_path[0]).__name__)\n"


@pytest.fixture
def supervisor() -> Iterator[PlayedSupervisor]:
    played = PlayedSupervisor()
    yield played
    played.close()


def of_a_rank(supervisor: PlayedSupervisor | None = None, **more: str) -> dict[str, str]:
    """The environment of a trainer with hooks."""
    kept = {name: value for name, value in os.environ.items() if "SBTRAIN" not in name}
    control = "127.0.0.1:1" if supervisor is None else supervisor.address
    path = os.pathsep.join((HOOKS, IMPORT_PATH))
    return {**kept, **OF_A_RANK, "SBTRAIN_CONTROL": control, "PYTHONPATH": path, **more}


def ran(text: str, environ: Mapping[str, str], cwd: Path) -> CommandResult:
    (cwd / "train.py").write_text(text)
    return run_command(
        [sys.executable, "train.py"], env=environ, cwd=cwd, timeout_s=300, check="keep"
    )


def heard(supervisor: PlayedSupervisor) -> list[Message]:
    """All that a process that has ended said."""
    supervisor.accept()
    found = []
    while True:
        try:
            found.append(supervisor.hear())
        except EOFError:
            return found


# -- the start of every Python -----------------------------------------------------------


def test_a_rank_is_watched_and_what_it_starts_is_not(tmp_path: Path) -> None:
    starts = f"import os, subprocess, sys\n{SEES}"
    starts += f"subprocess.run([sys.executable, '-c', {SEES!r}], check=True)\n"
    starts += "print(os.getpid() == int(os.environ['SBTRAIN_WITNESS']))\n"
    said = ran(starts, of_a_rank(PYTHONUNBUFFERED="1"), tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    watched, started, own = said.stdout.split()
    assert (watched, own) == ("FirstImport", "True")
    assert started != "FirstImport"


@pytest.mark.parametrize("name", ["SBTRAIN_CONTROL", "SLURM_JOB_ID"])
def test_what_is_no_trainer_of_its_job_is_not_watched(name: str, tmp_path: Path) -> None:
    said = ran(SEES, of_a_rank(**{"SBTRAIN_ROLE": "", name: ""}), tmp_path)
    assert (said.returncode, said.stderr) == (0, "")
    assert "FirstImport" not in said.stdout


def test_the_sitecustomize_behind_ours_is_the_one(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text("name = 'mine'\n")
    path = os.pathsep.join((HOOKS, str(tmp_path / "own")))
    text = f"import sitecustomize, sys\nprint(sitecustomize.name, {HOOKS!r} in sys.path)\n"
    said = ran(text + SEES, of_a_rank(PYTHONPATH=path), tmp_path)
    assert said.stdout.split() == ["mine", "False", "FirstImport"]


def test_what_the_users_sitecustomize_raises_is_told_as_ever(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/sitecustomize.py").write_text("import nothing_of_that_name\n")
    without = ran("", of_a_rank(PYTHONPATH=str(tmp_path / "own")), tmp_path)
    path = os.pathsep.join((HOOKS, str(tmp_path / "own")))
    said = ran("", of_a_rank(PYTHONPATH=path), tmp_path)
    assert "nothing_of_that_name" in without.stderr
    assert said.stderr == without.stderr


def test_a_framework_that_is_missing_is_missing(tmp_path: Path) -> None:
    text = "try:\n    import torch\nexcept ModuleNotFoundError as e:\n    print(e.name)\n"
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(name='of mine')\n")
    said = ran(text, of_a_rank(), tmp_path)
    assert (said.returncode, said.stdout, said.stderr) == (0, "of mine\n", "")


# -- the witness -------------------------------------------------------------------------


def test_a_witness_says_who_it_is_and_what_it_saw(supervisor: PlayedSupervisor) -> None:
    one = Witness({**OF_A_RANK, "SBTRAIN_CONTROL": supervisor.address})
    one.say(Forming(rank=1, where="x"))
    one._end()
    hello, forming = heard(supervisor)
    assert isinstance(hello, Hello)
    assert (hello.who, hello.rank, hello.pid) == ("witness", 1, os.getpid())
    assert forming == Forming(rank=1, where="x")


def test_a_witness_whom_nobody_hears_is_silent() -> None:
    one = Witness({**OF_A_RANK, "SBTRAIN_CONTROL": "127.0.0.1:1"})
    one.say(Forming(rank=1, where="x"))
    one._end()
    assert not one.speaks


def test_a_supervisor_that_reads_nothing_costs_no_time(supervisor: PlayedSupervisor) -> None:
    one = Witness({**OF_A_RANK, "SBTRAIN_CONTROL": supervisor.address})
    long = StepsDone(rank=1, first=1, seconds=(0.125,) * 50_000)
    for _ in range(40):
        one.say(long)
    assert one.speaks
    reader = threading.Thread(target=heard, args=(supervisor,), daemon=True)
    reader.start()
    one._end()
    reader.join(30)
    assert not reader.is_alive()


def test_a_signal_handler_may_speak_while_the_witness_does(
    supervisor: PlayedSupervisor,
) -> None:
    one = Witness({**OF_A_RANK, "SBTRAIN_CONTROL": supervisor.address})
    before = signal.signal(signal.SIGUSR1, lambda *_: one.say(Forming(rank=1, where="handler")))
    try:
        with one._busy:  # as where the signal comes while a message is being sent
            os.kill(os.getpid(), signal.SIGUSR1)
        one.say(Forming(rank=1, where="after"))
    finally:
        signal.signal(signal.SIGUSR1, before)
    one._end()
    assert [m.where for m in heard(supervisor) if isinstance(m, Forming)] == [
        "handler",
        "after",
    ]


def test_what_a_witness_forks_is_none(supervisor: PlayedSupervisor) -> None:
    one = Witness({**OF_A_RANK, "SBTRAIN_CONTROL": supervisor.address})
    child = os.fork()
    if child == 0:
        one.say(Forming(rank=1, where="child"))
        os._exit(7 if one.speaks else 0)
    assert os.waitpid(child, 0)[1] == 0
    one._end()
    assert [type(message) for message in heard(supervisor)] == [Hello]


# -- frameworks --------------------------------------------------------------------------


MPI = "from mpi4py import MPI\nprint(MPI.COMM_WORLD.Get_size())\n"


@pytest.mark.mpi
def test_mpi_tells_of_its_world(supervisor: PlayedSupervisor, tmp_path: Path) -> None:
    said = ran(MPI, of_a_rank(supervisor), tmp_path)
    assert (said.returncode, said.stdout) == (0, "1\n"), said.stderr
    _, forming, formed, over = heard(supervisor)
    assert over == ScriptOver(rank=1)
    assert forming == Forming(rank=1, where="MPI")
    assert formed == Formed(rank=1, where="MPI", place=0, size=1)
