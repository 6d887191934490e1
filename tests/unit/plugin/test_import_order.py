"""Our commands beside files and a PYTHONPATH that are meant for the user's own programs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from commands import WITHOUT_SLURM, clean_environ
from sbtrain_jobs.process import CommandResult, run_command

SHADOWS = ("typing", "dataclasses", "numpy", "h5py", "argparse", "json", "mpi4py")
SBTRAIN = Path(sys.executable).with_name("sbtrain")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for folder in (tmp_path, tmp_path / "lib"):
        folder.mkdir(exist_ok=True)
        for name in SHADOWS:
            (folder / f"{name}.py").write_text(f"raise SystemExit('the {name} of the user')\n")
    (tmp_path / "train.py").write_text("import numpy\n")
    return tmp_path


def called(place: Path, *argv: str, pythonpath: str) -> CommandResult:
    environ = clean_environ(SBTRAIN_HOME=str(place / "home"), PATH=WITHOUT_SLURM)
    environ["PYTHONPATH"] = pythonpath
    return run_command(argv, cwd=place, env=environ, timeout_s=60, check="keep")


@pytest.mark.parametrize("pythonpath", ["lib", ":lib", "lib:", "."])
@pytest.mark.parametrize(
    "words",
    [
        ("sbtrain", "--help"),
        ("sbtrain", "--train-explain", "--train-steps=5", "train.py"),
        ("sbtrainctl", "plan", "--train-steps=5"),
        ("sbtrainctl", "status"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_nothing_of_the_users_is_imported(
    place: Path, words: tuple[str, ...], pythonpath: str
) -> None:
    program = str(SBTRAIN.with_name(words[0]))
    said = called(place, program, *words[1:], pythonpath=pythonpath)
    assert (said.returncode, "of the user" in said.stderr) == (0, False), said.stderr


@pytest.mark.parametrize(
    "module", ["sbtrain.commands.batch", "sbtrain_jobs.node_agent", "sbtrain_staging"]
)
def test_nor_by_what_runs_in_the_job(place: Path, module: str) -> None:
    said = called(place, sys.executable, "-P", "-m", module, "--help", pythonpath="lib")
    assert "of the user" not in said.stderr + said.stdout
    assert "usage: " in said.stderr + said.stdout or "the plan --help" in said.stderr


def test_where_sbtrain_itself_is_on_the_path_it_stays_there(place: Path) -> None:
    wings = [path for path in sys.path if Path(path, "sbtrain").is_dir()]
    code = "import sys, sbtrain.commands; print([p for p in sys.path][:3])"
    path = os.pathsep.join((*wings, str(place / "lib")))
    said = called(place, sys.executable, "-P", "-c", code, pythonpath=path)
    assert str(place / "lib") not in said.stdout
