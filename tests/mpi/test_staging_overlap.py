"""Training can begin while data is still coming."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from sbtrain_jobs.process import end_session, start_process
from sbtrain_staging.errors import SourceError, StagingError
from sbtrain_staging.readers.reader import open_staged
from sbtrain_staging.sources.order import epoch_order
from staging_trees import snapshot, write_file, write_odd_tree

pytestmark = pytest.mark.mpi
SEED = 7


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for number in range(300):
        write_file(tmp_path / "tree" / f"{number:03}", 1000 * (1 + number % 400))
    (tmp_path / "tree" / "empty").touch()
    return tmp_path / "tree"


def test_files_come_in_the_order_of_the_seed(nodes, tree: Path) -> None:
    extra = ("--order-seed", str(SEED))
    argv = nodes.argv(2, nodes.run_arguments(tree, extra=extra), programs={})
    process = start_process(argv, stdout=subprocess.DEVNULL)
    try:
        data = open_staged(nodes.folder / "scratch" / "c2", tree)
        seen = []
        for name in data.in_order(SEED):
            with data.open(name) as stream:
                assert stream.read() == (tree / name).read_bytes()
            seen.append(name)
        assert process.wait(timeout=60) == 0
    finally:
        end_session(process)
        process.wait()
    names = sorted(path.name for path in tree.iterdir())
    assert seen == [names[place] for place in epoch_order(len(names), SEED)]
    with data.open("empty") as stream:
        assert stream.read() == b""


def test_finished_data_is_there_at_once(nodes, tmp_path: Path) -> None:
    tree = write_odd_tree(tmp_path / "tree")
    report = nodes.stage(2, tree)
    data = open_staged(nodes.folder / "scratch" / "c1", tree)
    assert data.path("train/a.tfrecord") == Path(report.nodes[0].paths[0]) / "train/a.tfrecord"
    data.wait("sparse", offset=5, length=100)
    with pytest.raises(SourceError):
        data.open("latest")
    assert snapshot(Path(report.nodes[0].paths[0])) == snapshot(tree)


def test_a_part_of_a_large_file_can_be_read_before_its_end(nodes, tmp_path: Path) -> None:
    file = write_file(tmp_path / "large.h5", 40 << 20)
    nodes.stage(1, file)
    cache = nodes.cache(0)
    data = open_staged(cache.parent, file)
    partial = cache / "partial" / data.manifest.version
    (partial / "tree").mkdir(parents=True)
    published = next((cache / "data").iterdir())
    (published / "large.h5").rename(partial / "tree" / "large.h5")
    published.rmdir()
    (partial / "journal").write_bytes(b"\0" * 20)
    data = open_staged(cache.parent, file)
    with data.open_growing() as stream:
        data.wait(offset=1000, length=1000)
        stream.seek(1000)
        assert stream.read(1000) == file.read_bytes()[1000:2000]


def test_waiting_for_staging_that_never_begins_ends(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(StagingError, match="did not begin"):
        open_staged(tmp_path, tmp_path / "x", timeout_s=0.2)
    assert time.monotonic() - started < 30


def test_waiting_ends_when_staging_died(
    nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbtrain_staging.readers.reader.START_GRACE_S", 0.5)
    file = write_file(tmp_path / "large.h5", 40 << 20)
    nodes.stage(1, file)
    cache = nodes.cache(0)
    data = open_staged(cache.parent, file)
    os.rename(next((cache / "data").iterdir()), tmp_path / "gone")  # noqa: PTH104
    with pytest.raises(StagingError, match="ended before"):
        data.wait()
