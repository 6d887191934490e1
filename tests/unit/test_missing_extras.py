"""What the base install lacks is named together with the extra that brings it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from sbtrain.commands.report import _EXTRA_OF

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
    assert f"pip install 'sbtrain[{extra}]'" in result.stderr
    assert "Traceback" not in result.stderr


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
TREES = [
    ast.parse(path.read_text())
    for wing in WINGS
    for path in sorted((ROOT / wing).rglob("*.py"))
]
MODULES = {"scikit-learn": "sklearn", "tensorflow-cpu": "tensorflow"}
# Needed without being imported: the MPI library that mpi4py loads, and its mpiexec.
LOADED = {"mpich": "mpi4py"}


def imported() -> set[str]:
    """Top names of all that the product imports, at any depth."""
    names = set()
    for node in (node for tree in TREES for node in ast.walk(tree)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def named_extras() -> set[str]:
    """Extras that the product's messages send users to."""
    names = set(_EXTRA_OF.values())
    for node in (node for tree in TREES for node in ast.walk(tree)):
        if isinstance(node, ast.Call):
            said = [word.value for word in node.keywords if word.arg == "extra"]
            if getattr(node.func, "id", "") == "needs_extra":
                said += node.args[:1]
            names |= {str(one.value) for one in said if isinstance(one, ast.Constant)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for found in re.findall(r"sbtrain\[([\w, -]+)\]", node.value):
                names |= {one.strip() for one in found.split(",")}
    return names


@pytest.mark.parametrize("extra", [name for name in EXTRAS if name != "dev"])
def test_every_package_of_an_extra_is_used(extra: str) -> None:
    for requirement in EXTRAS[extra]:
        package = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
        module = LOADED.get(package) or MODULES.get(package, package)
        assert module in imported(), requirement


def test_every_extra_that_is_named_can_be_installed() -> None:
    assert {"perf", "staging", "tensorflow"} <= named_extras() <= set(EXTRAS)
