"""Where the temporary files of a node's trainers go."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from plans import example_plan
from sbtrain_jobs.node_agent.temporary import MOST_CHARACTERS, temporary_folder

NODE = {"SLURMD_NODENAME": "c1"}


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="s-", dir="/tmp") as folder:
        yield Path(folder)


def test_it_is_in_the_nodes_scratch_and_goes_away(short: Path) -> None:
    (short / "c1").mkdir()
    plan = example_plan(scratch_path=f"{short}/%n")
    with temporary_folder(plan, short, NODE) as gained:
        folder = Path(gained["TMPDIR"])
        assert folder.parent == short / "c1"
        (folder / "deep").mkdir()
        (folder / "deep" / "left").touch()
    assert list((short / "c1").iterdir()) == []


@pytest.mark.parametrize("scratch", [None, "/no/such/disk/%n", "relative/%n"])
def test_without_scratch_it_is_in_the_attempts_folder(short: Path, scratch: str | None) -> None:
    plan = example_plan(scratch_path=scratch)
    with temporary_folder(plan, short, NODE) as gained:
        assert Path(gained["TMPDIR"]).parent == short
    assert list(short.iterdir()) == []


def test_a_path_too_long_for_sockets_is_not_used(short: Path) -> None:
    deep = short / ("d" * MOST_CHARACTERS)
    deep.mkdir()
    with temporary_folder(example_plan(scratch_path=None), deep, NODE) as gained:
        assert Path(gained["TMPDIR"]).parent == Path(tempfile.gettempdir())
        assert list(deep.iterdir()) == []
    assert not Path(gained["TMPDIR"]).exists()


def test_what_slurm_sets_where_nobody_said_anything_is_not_the_jobs_word(short: Path) -> None:
    with temporary_folder(
        example_plan(scratch_path=None), short, NODE | {"TMPDIR": "/tmp"}
    ) as its:
        assert Path(its["TMPDIR"]).parent == short


def test_a_folder_that_the_job_names_stays(short: Path) -> None:
    plan = example_plan(scratch_path=None)
    with temporary_folder(plan, short, NODE | {"TMPDIR": "/own"}) as gained:
        assert gained == {}
        assert list(short.iterdir()) == []
