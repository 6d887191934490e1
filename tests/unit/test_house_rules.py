"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WINGS = {
    "sbtrain": ROOT / "slurm_plugin/sbtrain",
    "sbtrain_jobs": ROOT / "jobs/sbtrain_jobs",
    "sbtrain_perf": ROOT / "perf/sbtrain_perf",
    "sbtrain_staging": ROOT / "io_staging/sbtrain_staging",
}
SOURCES = sorted(path for wing in WINGS.values() for path in wing.rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Top names of every module that a file imports, at any depth of its code."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.split(".")[0])
    return names


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_layers_point_one_way() -> None:
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout


def test_one_file_starts_processes() -> None:
    starters = {ids(path) for path in SOURCES if "subprocess" in imported(path)}
    assert starters == {"jobs/sbtrain_jobs/process.py"}


def test_one_file_reads_the_bundled_sites() -> None:
    readers = {ids(path) for path in SOURCES if "sbtrain_sites" in imported(path)}
    assert readers <= {"slurm_plugin/sbtrain/sites/site_file.py"}


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_a_file_says_what_it_owns_and_stays_small(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "no docstring"
    assert len(text.splitlines()) <= 450
    assert "pickle" not in imported(path)
