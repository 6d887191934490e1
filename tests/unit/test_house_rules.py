"""Rules of the house that no linter knows."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
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


def modules() -> dict[str, Path]:
    """Every module of the product by its dotted name."""
    found = {}
    for wing, folder in WINGS.items():
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join((wing, *(part for part in parts if part != "__init__")))] = path
    return found


def import_graph() -> dict[str, set[str]]:
    """Which modules each module imports, at any depth of its code, for types alone included."""
    names = modules()
    graph = {}
    for name, path in names.items():
        uses = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                uses |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                uses |= (members & names.keys()) or {node.module}
        graph[name] = (uses & names.keys()) - {name}
    return graph


def test_no_module_imports_itself_by_way_of_others() -> None:
    list(TopologicalSorter(import_graph()).static_order())  # CycleError names the circle


def test_the_folders_of_a_wing_point_one_way() -> None:
    """Its root aside, which holds what all of them share and what calls them."""
    names, folders = modules(), dict[str, set[str]]()
    for name, uses in import_graph().items():
        within = ids(names[name].parent)
        folders.setdefault(within, set()).update(ids(names[used].parent) for used in uses)
    roots = {ids(folder) for folder in WINGS.values()}
    inner = {a: {b for b in to if b != a} - roots for a, to in folders.items()}
    list(TopologicalSorter({a: to for a, to in inner.items() if a not in roots}).static_order())


def test_no_folder_is_a_heap() -> None:
    """sbtrain_perf is cut anew when its two engines become one."""
    folders = {path.parent for path in SOURCES} - {WINGS["sbtrain_perf"]}
    heaps = {ids(folder): len(list(folder.glob("*.py"))) for folder in folders}
    assert {folder: number for folder, number in heaps.items() if number > 20} == {}


def test_a_public_class_has_a_name_of_its_own() -> None:
    defined: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                defined.setdefault(node.name, []).append(ids(path))
    assert {name: places for name, places in defined.items() if len(places) > 1} == {}


@pytest.mark.parametrize("path", SOURCES, ids=ids)
def test_a_file_says_what_it_owns_and_stays_small(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "no docstring"
    assert len(text.splitlines()) <= 450
    assert "pickle" not in imported(path)
