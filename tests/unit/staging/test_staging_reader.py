"""Reading beside a staging that moves files: the moment of publishing, held still."""

from __future__ import annotations

from pathlib import Path
from typing import IO, Any

import pytest

from sbtrain_staging.cache.locks import FileLock
from sbtrain_staging.cache.node_cache import NodeCache
from sbtrain_staging.commandline import main
from sbtrain_staging.errors import StagingError
from sbtrain_staging.readers.reader import StagedData, open_staged
from staging_trees import write_file


class Staging:
    """A finished copy taken back to the moment before it was published."""

    def __init__(self, folder: Path) -> None:
        self.source = write_file(folder / "a.h5", 1000)
        scratch = folder / "scratch"
        scratch.mkdir()
        assert main(["run", "--to", str(scratch), "--key", "k", str(self.source)], {}) == 0
        self.cache = NodeCache(scratch)
        self.data: StagedData = open_staged(scratch, self.source)
        self.data.wait()
        version = self.data.manifest.version
        self.record, self.kept = self.cache.records / version, folder / "record"
        (self.published,) = self.cache.data.iterdir()
        self.tree = self.cache.partial / version / "tree"
        self.lock = FileLock(self.cache.partial / f"{version}.lock")
        self.tree.parent.mkdir()
        self.published.rename(self.tree)
        self.record.rename(self.kept)

    def publish(self) -> None:
        self.tree.rename(self.published)
        self.kept.rename(self.record)


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(tmp_path)


def before_opening(monkeypatch: pytest.MonkeyPatch, steps: list[Any]) -> None:
    """Have one step happen right before each opening of a data file."""
    usual = Path.open

    def opening(self: Path, *words: Any, **named: Any) -> IO[Any]:
        if self.name == "a.h5" and steps:
            steps.pop(0)()
        return usual(self, *words, **named)

    monkeypatch.setattr(Path, "open", opening)


@pytest.mark.parametrize("how", ["open", "open_growing"])
def test_a_file_that_is_published_between_the_look_and_the_opening(
    staging: Staging, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    before_opening(monkeypatch, [staging.publish])
    with getattr(staging.data, how)() as stream:
        assert stream.read() == staging.source.read_bytes()


def test_a_copy_that_is_replaced_is_waited_for_while_staging_works(
    staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree has its place, but no record names it yet: for as long as the lock is held."""
    assert staging.lock.try_acquire()
    staging.tree.rename(staging.published)
    asked = iter(range(4))
    usual = StagedData._is_being_staged

    def later(self: StagedData) -> bool:
        held = usual(self)
        if next(asked) == 3:
            staging.kept.rename(staging.record)
            staging.lock.release()
        return held

    monkeypatch.setattr(StagedData, "_is_being_staged", later)
    with staging.data.open() as stream:
        assert stream.read() == staging.source.read_bytes()


def test_a_file_that_is_gone_is_said(staging: Staging) -> None:
    for read in (staging.data.open, staging.data.open_growing):
        (staging.tree / "a.h5").unlink(missing_ok=True)
        with pytest.raises(StagingError, match="not on this node any more"):
            read()
