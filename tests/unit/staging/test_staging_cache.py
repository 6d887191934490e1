"""The node cache: least recently used copies go first, pinned ones stay, leftovers vanish."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sbtrain_staging.cache.locks import FileLock
from sbtrain_staging.cache.node_cache import NodeCache
from sbtrain_staging.commandline import main
from sbtrain_staging.errors import ScratchError, SourceError
from sbtrain_staging.reports.run_report import StagingReport, read_report
from sbtrain_staging.sources.scan import scan
from staging_trees import snapshot, stray_names, write_file, write_odd_tree


def stage(folder: Path, *sources: Path, key: str = "k", extra: tuple[str, ...] = ()) -> int:
    (folder / "scratch").mkdir(exist_ok=True)
    options = ["--to", str(folder / "scratch"), "--key", key]
    options += ["--report", str(folder / "report.json"), *extra]
    return main(["run", *options, *map(str, sources)], {"SLURMD_NODENAME": "c1"})


def staged(folder: Path, *sources: Path, key: str = "k") -> StagingReport:
    assert stage(folder, *sources, key=key) == 0
    return read_report(folder / "report.json")


def cache_of(folder: Path) -> NodeCache:
    return NodeCache(folder / "scratch")


def contents(folder: Path) -> set[str]:
    return {path.name for path in cache_of(folder).data.iterdir()}


def test_one_rank_alone_needs_no_mpi(tmp_path: Path) -> None:
    tree = write_odd_tree(tmp_path / "tree")
    report = staged(tmp_path, tree)
    assert snapshot(Path(report.nodes[0].paths[0])) == snapshot(tree)
    assert stray_names(cache_of(tmp_path).root) == []
    assert staged(tmp_path, tree).source_bytes_read == 0


def test_two_names_of_one_content_share_a_copy(tmp_path: Path) -> None:
    first = write_file(tmp_path / "a" / "data.h5", 5000)
    second = write_file(tmp_path / "b" / "data.h5", 5000)
    for path in (first, second):
        os.utime(path, ns=(10**18, 10**18))
    report = staged(tmp_path, first, second)
    assert report.nodes[0].paths[0] == report.nodes[0].paths[1]
    assert staged(tmp_path, first, second).source_bytes_read == 0


def test_the_least_recently_used_copy_makes_room(tmp_path: Path) -> None:
    files = [write_file(tmp_path / f"{name}.h5", 1 << 20) for name in "abc"]
    quota = ("--quota", "2M")
    names = []
    for age_s, file in zip((30, 20), files[:2], strict=True):
        assert stage(tmp_path, file, key="old", extra=quota) == 0
        place = Path(read_report(tmp_path / "report.json").nodes[0].paths[0]).parent
        os.utime(place, (time.time() - age_s, time.time() - age_s))
        names.append(place.name)
    cache_of(tmp_path).unpin("old")
    assert stage(tmp_path, files[2], extra=quota) == 0
    assert names[0] not in contents(tmp_path)
    assert names[1] in contents(tmp_path)


def test_copies_that_a_job_counts_on_stay(tmp_path: Path) -> None:
    first = write_file(tmp_path / "a.h5", 1 << 20)
    second = write_file(tmp_path / "b.h5", 1 << 20)
    assert stage(tmp_path, first, key="running", extra=("--quota", "1M")) == 0
    before = contents(tmp_path)
    code = stage(tmp_path, second, extra=("--quota", "1M"))
    assert code == ScratchError.exit_code
    assert contents(tmp_path) == before


def test_too_little_room_is_said_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_file(tmp_path / "a.h5", 1 << 20)
    assert stage(tmp_path, file, extra=("--quota", "1K")) == ScratchError.exit_code
    assert "quota of 1024" in capsys.readouterr().err
    assert not contents(tmp_path)


def test_an_unexpected_size_is_refused(tmp_path: Path) -> None:
    file = write_file(tmp_path / "a.h5", 1000)
    assert stage(tmp_path, file, extra=("--expect-size", "999")) == SourceError.exit_code
    assert stage(tmp_path, file, extra=("--expect-size", "1000")) == 0


def test_leftovers_of_dead_runs_are_removed(tmp_path: Path) -> None:
    file = write_file(tmp_path / "a.h5", 1000)
    staged(tmp_path, file)
    cache = cache_of(tmp_path)
    for name in ("0" * 32, "1" * 32):
        write_file(cache.partial / name / "tree" / "x", 10)
        os.utime(cache.partial / name, (0, 0))
    write_file(cache.data / ("2" * 32) / "x", 10)
    write_file(cache.partial / "trash.sbtrain-tmp-00" / "x", 10)
    (cache.records / ".r.sbtrain-tmp-00").touch()
    busy = FileLock(cache.partial / ("1" * 32 + ".lock"))
    assert busy.try_acquire()
    staged(tmp_path, file)
    assert [path.name for path in cache.partial.glob("*") if path.is_dir()] == ["1" * 32]
    busy.release()
    os.utime(cache.partial / ("1" * 32), (0, 0))
    staged(tmp_path, file)
    assert stray_names(cache.root) == []
    assert len(contents(tmp_path)) == 1


def test_a_cache_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "elsewhere").mkdir()
    cache_of(tmp_path).root.symlink_to(tmp_path / "elsewhere")
    file = write_file(tmp_path / "a.h5", 10)
    assert stage(tmp_path, file) == ScratchError.exit_code


def test_a_lock_outlives_neither_its_holder_nor_its_file(tmp_path: Path) -> None:
    first, second = FileLock(tmp_path / "l"), FileLock(tmp_path / "l")
    assert first.try_acquire()
    assert not second.try_acquire()
    first.release()
    assert not (tmp_path / "l").exists()
    assert second.try_acquire()
    child = os.fork()
    if child == 0:
        os._exit(0 if not first.try_acquire() else 1)
    assert os.waitpid(child, 0)[1] == 0
    second.release()


def test_only_what_changed_is_fetched(tmp_path: Path) -> None:
    tree = write_odd_tree(tmp_path / "tree")
    old = staged(tmp_path, tree)
    before = snapshot(tree)
    write_file(tree / "images" / "3" / "3.jpg", 77, seed=5)
    (tree / "train" / "a.tfrecord").rename(tree / "train" / "renamed")
    (tree / "new").write_bytes(b"new")
    report = staged(tmp_path, tree)
    renamed = (tree / "train" / "renamed").stat().st_size
    assert report.source_bytes_read == 77 + 3 + renamed
    assert snapshot(Path(report.nodes[0].paths[0])) == snapshot(tree)
    assert snapshot(Path(old.nodes[0].paths[0])) == before


def test_an_attempt_that_died_after_linking_leaves_the_older_copy_alone(
    tmp_path: Path,
) -> None:
    tree = write_odd_tree(tmp_path / "tree")
    old = Path(staged(tmp_path, tree).nodes[0].paths[0])
    before = snapshot(tree)
    big = tree / "train" / "b.tfrecord"
    write_file(big, big.stat().st_size, seed=9)
    cache = cache_of(tmp_path)
    unfinished = cache.partial / scan(tree).version / "tree" / "tree" / "train"
    unfinished.mkdir(parents=True)
    os.link(old / "train" / "b.tfrecord", unfinished / "b.tfrecord")
    new = Path(staged(tmp_path, tree).nodes[0].paths[0])
    assert snapshot(new) == snapshot(tree)
    assert snapshot(old) == before
