"""Folders and counts, as the supervisor makes and says them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from plans import example_plan
from sbtrain_jobs.run_folder import RunFolder


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0o002)
    yield
    os.umask(before)


@pytest.mark.usefixtures("open_umask")
def test_every_folder_of_an_attempt_is_private(tmp_path: Path) -> None:
    plan = example_plan(run_dir=str(tmp_path / "runs" / "run"))
    for attempt in (0, 1):
        folder = RunFolder.of(plan).attempt(attempt)
        folder.make()
        assert folder.path == tmp_path / "runs" / "run" / "attempts" / str(attempt)
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert {path.stat().st_mode & 0o777 for path in made} == {0o700}
    assert len(made) == 5


@pytest.mark.usefixtures("open_umask")
def test_folders_that_are_there_keep_their_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    plan = example_plan(run_dir=str(tmp_path))
    for _ in range(2):
        RunFolder.of(plan).attempt(0).make()
    assert tmp_path.stat().st_mode & 0o777 == 0o750
