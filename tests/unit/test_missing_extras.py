"""What the base install lacks is named together with the extra that brings it."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sbtrain.commands.report import _EXTRA_OF
from sbtrain_perf.extras import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
WINGS = ["slurm_plugin", "jobs", "perf", "io_staging"]
BLOCKER = """
import sys

BLOCKED = {"h5py", "sklearn", "scipy", "xxhash", "mpi4py", "tensorflow", "keras", "torch"}


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocker())
"""


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        (["sbtrain_perf.score", "pollux", "--fit", ".", "--score", "."], "scipy", "perf"),
        (["sbtrain_perf.regret", "--data", "."], "scipy", "perf"),
        (
            [
                "sbtrain_staging",
                "run",
                "--to",
                "{}/%n",
                "--key",
                "k",
                "--report",
                "r",
                "f",
            ],
            "xxhash",
            "staging",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_the_extra_is_named(tmp_path: Path, words: list[str], package: str, extra: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    (tmp_path / "f").write_text("data")
    path = ":".join([str(tmp_path), *(str(ROOT / wing) for wing in WINGS)])
    result = subprocess.run(
        [sys.executable, "-m", *(word.format(tmp_path) for word in words)],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode not in (0, 1), result.stderr
    assert f"{package!r}" in result.stderr
    assert f"{sys.executable} -m pip install " in result.stderr
    assert f"# the extra {extra}\n" in result.stderr
    assert "Traceback" not in result.stderr


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
MODULES = {"scikit-learn": "sklearn", "tensorflow-cpu": "tensorflow"}
# Needed without being imported: the MPI library that mpi4py loads, and its mpiexec.
LOADED = {"mpich": "mpi4py"}


@functools.cache
def trees() -> list[ast.Module]:
    """Of every module of the product."""
    paths = (path for wing in WINGS for path in sorted((ROOT / wing).rglob("*.py")))
    return [ast.parse(path.read_text()) for path in paths]


@functools.cache
def imported() -> set[str]:
    """Top names of all that the product imports, at any depth."""
    names = set()
    for node in (node for tree in trees() for node in ast.walk(tree)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def named_extras() -> set[str]:
    """Extras that the product's messages send users to."""
    names = set(_EXTRA_OF.values())
    for node in (node for tree in trees() for node in ast.walk(tree)):
        if isinstance(node, ast.Call):
            said = [word.value for word in node.keywords if word.arg == "extra"]
            if getattr(node.func, "id", "") == "needs_extra":
                said += node.args[:1]
            elif getattr(node.func, "id", "") == "install_extras":
                said += node.args
            names |= {str(one.value) for one in said if isinstance(one, ast.Constant)}
    return names


@pytest.mark.parametrize(
    "extra", [name for name in EXTRAS if name not in ("dev", "frameworks")]
)
def test_every_package_of_an_extra_is_used(extra: str) -> None:
    for requirement in EXTRAS[extra]:
        package = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        module = LOADED.get(package) or MODULES.get(package, package)
        assert module in imported(), requirement


def test_every_extra_that_is_named_can_be_installed() -> None:
    assert {"perf", "staging", "mpich", "tensorflow"} == named_extras() == set(PACKAGES)
    for extra, packages in PACKAGES.items():
        required = [re.split(r"[^\w.-]", one, maxsplit=1)[0] for one in EXTRAS[extra]]
        assert list(packages) == required


def test_no_message_sends_to_an_index_for_sbtrain() -> None:
    for tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                assert not re.search(r"pip install.*sbtrain\b", node.value), node.value


def test_a_package_that_cannot_be_loaded_is_not_called_missing(tmp_path: Path) -> None:
    (tmp_path / "h5py").mkdir()
    (tmp_path / "h5py" / "__init__.py").write_text(
        "raise ImportError('libhdf5.so.103: no such file', name='h5py._errors')"
    )
    code = (
        "from sbtrain_perf.errors import MissingExtraError, needs_extra\n"
        "try:\n    with needs_extra('perf', purpose='the timing log'): import h5py\n"
        "except MissingExtraError as error: print(error.message)"
    )
    path = ":".join([str(tmp_path), *(str(ROOT / wing) for wing in WINGS)])
    said = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == (
        "the timing log needs the packages of the extra perf, which cannot be loaded: "
        "libhdf5.so.103: no such file\n"
    )
