"""The suite about itself: every test is run by a command, and none is skipped unnoticed."""

from __future__ import annotations

import ast
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

import allowed_skips
from sbtrain_jobs.process import run_command

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"


def pytest_arguments(target: str) -> list[str]:
    """What `make TARGET` says to pytest."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("MAKE")}
    told = run_command(["make", "-n", target], cwd=ROOT, env=environ, timeout_s=60).stdout
    (line,) = [line for line in told.splitlines() if " -m pytest -n" in line]
    _, _, words = line.partition(" -m pytest")
    return shlex.split(words)


def collected(arguments: list[str]) -> set[str]:
    """Tests that pytest finds, without their parameters."""
    argv = [sys.executable, "-m", "pytest", *arguments]
    argv += ["-n0", "--collect-only", "-q", "-p", "no:cacheprovider"]
    told = run_command(argv, cwd=ROOT, timeout_s=240).stdout
    ids = [line for line in told.splitlines() if line.startswith("tests/") and "::" in line]
    assert ids, told
    names = {one.partition("[")[0].partition("@")[0] for one in ids}
    return {one for one in names if not one.endswith("::runTest")}  # hypothesis's machines


def written() -> set[str]:
    """Every test function of the tree, whatever pytest makes of it."""
    found = set()
    for path in TESTS.rglob("*.py"):
        file = str(path.relative_to(ROOT))
        tree = ast.parse(path.read_text())
        scopes = [(file, tree.body)]
        scopes += [
            (f"{file}::{node.name}", node.body)
            for node in tree.body
            if isinstance(node, ast.ClassDef) and node.name.startswith("Test")
        ]
        found |= {
            f"{scope}::{node.name}"
            for scope, body in scopes
            for node in body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and node.name.startswith("test")
        }
    return found


def test_every_test_of_the_tree_is_run_by_a_command() -> None:
    *shared, marked, fast = pytest_arguments("test")
    assert (marked, fast) == ("-m", "not slow")
    assert pytest_arguments("test-long") == [*shared, "-m", "slow"]
    assert written() == collected(shared)


SKIPS = {
    "inside": "import pytest\ndef test_it():\n    pytest.skip('no lua')\n",
    "mark": "import pytest\n@pytest.mark.skip(reason='no lua')\ndef test_it(): pass\n",
    "module": "import pytest\npytest.skip('no lua', allow_module_level=True)\n",
    "fixture": "import pytest\n@pytest.fixture\ndef lua(): pytest.skip('no lua')\n"
    "def test_it(lua): pass\n",
}


def test_a_skip_as_root_is_a_failure(tmp_path: Path) -> None:
    for name, text in SKIPS.items():
        (tmp_path / f"test_{name}.py").write_text(text)
    argv = [sys.executable, "-m", "pytest", "-p", "skips", "-p", "no:cacheprovider", "-q"]
    argv += ["-c", "/dev/null", "--rootdir", str(tmp_path), str(tmp_path)]
    argv += ["--continue-on-collection-errors"]
    environ = {**os.environ, "PYTHONPATH": str(TESTS)}
    said = run_command(argv, cwd=tmp_path, env=environ, timeout_s=60, check="keep")
    if os.geteuid() == 0:
        assert said.returncode != 0
        for name in SKIPS:
            assert re.search(rf"(FAILED|ERROR) test_{name}\.py", said.stdout), said.stdout
        assert said.stdout.count("skipped as root: no lua") >= len(SKIPS)
        assert "passed" not in said.stdout
    else:
        assert "4 skipped" in said.stdout


def test_a_listed_skip_is_allowed_for_its_reason_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = allowed_skips.AllowedSkip(tests="tests/a.py::*", said="no NFS", why="...")
    monkeypatch.setattr(allowed_skips, "ALLOWED", (listed,))
    assert allowed_skips.allows("tests/a.py::test_it[x]", "no NFS in this kernel")
    assert not allowed_skips.allows("tests/a.py::test_it[x]", "no lua")
    assert not allowed_skips.allows("tests/b.py::test_it", "no NFS in this kernel")
