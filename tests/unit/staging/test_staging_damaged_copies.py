"""What happens to a copy between two stagings: it is found and mended, never handed out."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sbtrain_staging.cache.node_cache import NodeCache
from sbtrain_staging.commandline import main
from sbtrain_staging.engine.partial import PartialCopy
from sbtrain_staging.reports.run_report import StagingReport, read_report
from sbtrain_staging.sources.scan import scan
from staging_harm import by_content, change_source, harm_cache
from staging_trees import rot, snapshot, stray_names, write_file, write_odd_tree

ENVIRON = {"SLURMD_NODENAME": "c1"}
BIG = "train/b.tfrecord"  # of two pieces


class Node:
    """One node that stages one tree again and again."""

    def __init__(self, folder: Path, source: Path) -> None:
        self.source, self.scratch = source, folder / "scratch"
        self.scratch.mkdir(exist_ok=True)
        self.cache = NodeCache(self.scratch)
        self._report = folder / "report.json"

    def stage(self, *extra: str, key: str = "k") -> StagingReport:
        assert self.try_stage(*extra, key=key) == 0
        return read_report(self._report)

    def try_stage(self, *extra: str, key: str = "k") -> int:
        words = ["run", "--to", str(self.scratch), "--key", key, "--report", str(self._report)]
        return main([*words, *extra, str(self.source)], ENVIRON)

    def copy(self, *extra: str, key: str = "k") -> Path:
        return Path(self.stage(*extra, key=key).nodes[0].paths[0])

    @property
    def record(self) -> Path:
        (found,) = self.cache.records.iterdir()
        return found


@pytest.fixture(scope="module")
def odd_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_odd_tree(tmp_path_factory.mktemp("source") / "tree")


@pytest.fixture
def kept(odd_tree: Path, tmp_path: Path) -> Node:
    """Of a source that stays as it is."""
    return Node(tmp_path, odd_tree)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, write_odd_tree(tmp_path / "tree"))


def truncate(path: Path) -> None:
    os.truncate(path / BIG, 10)


def cut_at_equal_time(path: Path) -> None:
    status = (path / BIG).stat()
    os.truncate(path / BIG, status.st_size - 1)
    os.utime(path / BIG, ns=(status.st_mtime_ns, status.st_mtime_ns))


def append(path: Path) -> None:
    status = (path / BIG).stat()
    with (path / BIG).open("ab") as stream:
        stream.write(b"more")
    os.utime(path / BIG, ns=(status.st_mtime_ns, status.st_mtime_ns))


def replace_by_link(path: Path) -> None:
    elsewhere = path.parents[4] / "elsewhere"
    (path / BIG).replace(elsewhere)
    (path / BIG).symlink_to(elsewhere)


def replace_by_folder(path: Path) -> None:
    (path / BIG).unlink()
    (path / BIG).mkdir()
    (path / BIG / "x").touch()


def turn_link(path: Path) -> None:
    (path / "latest").unlink()
    (path / "latest").symlink_to("images/3/3.jpg")


def fill_all_hole(path: Path) -> None:
    status = (path / "all-hole").stat()
    (path / "all-hole").write_bytes(b"x" * status.st_size)
    os.utime(path / "all-hole", ns=(status.st_mtime_ns, status.st_mtime_ns))


HARMS: dict[str, Callable[[Path], object]] = {
    "truncated": truncate,
    "cut": cut_at_equal_time,
    "longer": append,
    "rot": lambda path: rot(path / BIG),
    "rot in the second piece": lambda path: rot(path / BIG, at=16 * (1 << 20) + 3),
    "rot in a small file": lambda path: rot(path / "images" / "3" / "3.jpg", at=5),
    "rot in a hole": lambda path: rot(path / "sparse", at=30 << 20),
    "rot in nothing but a hole": fill_all_hole,
    "missing": lambda path: (path / "images" / "3" / "3.jpg").unlink(),
    "missing and empty": lambda path: (path / "empty").unlink(),
    "missing folder": lambda path: (path / "no-entries").rmdir(),
    "missing link": lambda path: (path / "latest").unlink(),
    "missing branch": lambda path: shutil.rmtree(path / "images"),
    "all missing": lambda path: shutil.rmtree(path.parent),
    "not empty": lambda path: (path / "empty").write_text("x"),
    "mode": lambda path: (path / BIG).chmod(0o600),
    "mode of a folder": lambda path: (path / "images").chmod(0o777),
    "time": lambda path: os.utime(path / BIG),
    "stray file": lambda path: (path / "images" / "labels.cache").touch(),
    "stray beside": lambda path: (path.parent / "other").mkdir(),
    "link in place of a file": replace_by_link,
    "folder in place of a file": replace_by_folder,
    "link to another file": turn_link,
    "link in place of the copy": lambda path: (
        path.parent.rename(path.parents[3] / "moved"),
        path.parent.symlink_to(path.parents[3] / "moved"),
    ),
    "file in place of the copy": lambda path: (
        shutil.rmtree(path.parent),
        path.parent.write_text("x"),
    ),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_harmed_copy_is_mended(kept: Node, harm: str) -> None:
    """Staged again as it is, then as a version of its own with the same content."""
    before = snapshot(kept.source)
    HARMS[harm](kept.copy())
    copy = kept.copy()
    assert snapshot(copy) == before
    assert not copy.parent.is_symlink()
    shutil.rmtree(kept.scratch / "moved", ignore_errors=True)
    HARMS[harm](copy)
    for path in (kept.source, *kept.source.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o7777)
    assert snapshot(kept.copy()) == before == snapshot(kept.source)
    assert stray_names(kept.cache.root) == []
    last = kept.stage()
    assert last.source_bytes_read == 0
    assert last.nodes[0].checked_bytes > 0


def test_only_the_harmed_file_is_fetched_anew(kept: Node) -> None:
    copy = kept.copy()
    rot(copy / BIG)
    (copy / "stray").touch()
    report = kept.stage()
    assert report.source_bytes_read == (kept.source / BIG).stat().st_size
    assert kept.copy() == copy


def test_rot_is_not_taken_over_into_a_newer_version(node: Node) -> None:
    copy = node.copy()
    rot(copy / "images" / "3" / "3.jpg", at=5)
    rot(copy / BIG, at=5)
    write_file(node.source / "train" / "a.tfrecord", 999, seed=3)
    assert snapshot(node.copy()) == snapshot(node.source)


@pytest.mark.parametrize("kept", [0, 1])
def test_rot_in_a_file_that_an_unfinished_copy_links_to(node: Node, kept: int) -> None:
    """The other piece of it is whole, and must not be lost with the link."""
    copy = node.copy()
    write_file(node.source / "train" / "a.tfrecord", 999, seed=3)
    manifest = scan(node.source)
    from sbtrain_staging.sources.pieces import PieceTable

    partial = PartialCopy(node.cache, manifest, PieceTable(manifest))
    assert partial.try_lock()
    partial.recover()
    partial.begin()
    partial.unlock()
    rot(copy / BIG, at=(16 << 20) * (1 - kept) + 1)
    assert snapshot(node.copy()) == snapshot(node.source)


@pytest.mark.parametrize("harm", ["longer", "rot", "hole", "mode", "stray", "link", "journal"])
def test_a_harmed_unfinished_copy(kept: Node, harm: str) -> None:
    manifest = scan(kept.source)
    copy = kept.copy()
    shutil.rmtree(kept.cache.records)
    partial = kept.cache.partial / manifest.version
    partial.mkdir()
    copy.parent.rename(partial / "tree")
    from sbtrain_staging.cache.journal import journal_bytes
    from sbtrain_staging.sources.hashing import digest
    from sbtrain_staging.sources.pieces import PieceTable

    table = PieceTable(manifest)
    held = []
    for piece, index in enumerate(table.files):
        with open(manifest.source_path(index), "rb") as stream:  # noqa: PTH123
            stream.seek(table.offsets[piece])
            held.append((piece, digest(stream.read(table.lengths[piece]))))
    (partial / "journal").write_bytes(journal_bytes(held))
    tree = partial / "tree" / "tree"
    if harm == "longer":
        append(tree)
    elif harm == "rot":
        rot(tree / BIG, at=17 << 20)
    elif harm == "hole":
        rot(tree / "sparse", at=30 << 20)
    elif harm == "mode":
        (tree / "images" / "3" / "3.jpg").chmod(0o777)
    elif harm == "stray":
        (tree / "images" / "stray").mkdir()
    elif harm == "link":
        shutil.rmtree(tree / "images")
        (tree / "images").symlink_to(kept.scratch)
    else:
        (partial / "journal").unlink()
        (partial / "journal").mkdir()
    assert snapshot(kept.copy()) == snapshot(kept.source)
    assert stray_names(kept.cache.root) == []


def flipped(record: Path, at: int) -> None:
    content = bytearray(record.read_bytes())
    content[at % len(content)] ^= 1
    record.write_bytes(content)


RECORD_HARMS: dict[str, Callable[[Path], object]] = {
    "empty": lambda record: record.write_bytes(b""),
    "short": lambda record: os.truncate(record, record.stat().st_size // 2),
    "gone": lambda record: record.unlink(),
    "another kind": lambda record: (record.unlink(), record.mkdir()),
    "deep": lambda record: record.write_bytes(b"[" * 100_000),
    "no copy": lambda record: record.write_bytes(
        record.read_bytes().replace(b'"content":"', b'"content":5,"x":"')
    ),
    "upwards": lambda record: record.write_bytes(
        b'{"content":"..","name":"tree","root":"/","size_bytes":1,"entries":1,"digests":0}\n'
    ),
    "another name": lambda record: record.write_bytes(
        record.read_bytes().replace(b'"name":"tree"', b'"name":"free"', 1)
    ),
}


@pytest.fixture
def small(tmp_path: Path) -> Node:
    source = tmp_path / "tree"
    for number in range(9):
        write_file(source / str(number % 2) / str(number), 100 * number)
    return Node(tmp_path, source)


def check_after_damage_to_the_record(node: Node) -> None:
    assert main(["status", "--to", str(node.scratch)], ENVIRON) == 0
    assert snapshot(node.copy()) == snapshot(node.source)
    assert stray_names(node.cache.root) == []
    assert node.stage().source_bytes_read == 0


@pytest.mark.parametrize("harm", RECORD_HARMS)
def test_a_damaged_record_is_replaced(small: Node, harm: str) -> None:
    small.copy()
    RECORD_HARMS[harm](small.record)
    check_after_damage_to_the_record(small)


def test_any_bit_of_a_record_may_flip(small: Node) -> None:
    small.copy()
    for at in range(0, small.record.stat().st_size, 29):
        flipped(small.record, at)
        check_after_damage_to_the_record(small)


def test_damaged_records_of_other_sources_are_in_nobodys_way(
    small: Node, tmp_path: Path
) -> None:
    node = small
    node.copy()
    flipped(node.record, -1)
    other = Node(tmp_path, write_file(tmp_path / "a.h5", 1000))
    assert snapshot(other.copy()) == snapshot(other.source)
    write_file(node.source / "new", 10)
    assert snapshot(node.copy()) == snapshot(node.source)


@pytest.mark.parametrize("name", ["data", "records", "partial", "pins", "lock"])
@pytest.mark.parametrize("kind", ["gone", "file", "folder", "link", "closed"])
def test_a_damaged_cache_folder_is_made_anew(small: Node, name: str, kind: str) -> None:
    node = small
    node.copy()
    place = node.cache.root / name
    if kind == "closed":
        place.chmod(0o000)
    else:
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    if kind == "file":
        place.write_text("x")
    elif kind == "folder":
        place.mkdir(mode=0o777)
    elif kind == "link":
        place.symlink_to(node.scratch)
    assert snapshot(node.copy()) == snapshot(node.source)
    assert place.is_file() if name == "lock" else place.is_dir()
    assert not place.is_symlink()
    assert stray_names(node.cache.root) == []


def test_a_job_that_uses_a_copy_sees_no_gap_while_it_is_replaced(kept: Node) -> None:
    copy = kept.copy(key="running")
    file, stray = copy / "images" / "3" / "3.jpg", copy / "images" / "labels.cache"
    rot(copy / BIG)
    stray.touch()
    ended, missed = threading.Event(), []

    def use() -> None:
        while not ended.is_set():
            try:
                file.open("rb").close()
            except OSError as error:
                missed.append(error)

    using = threading.Thread(target=use)
    using.start()
    try:
        kept.stage()
    finally:
        ended.set()
        using.join()
    assert missed == []
    assert not stray.exists()
    assert kept.cache.is_pinned(copy.parent.name)


def test_a_pinned_copy_whose_record_is_lost_stays(kept: Node, tmp_path: Path) -> None:
    copy = kept.copy()
    kept.record.unlink()
    other = Node(tmp_path, write_file(tmp_path / "a.h5", 1000))
    other.stage(key="other")
    assert snapshot(copy) == snapshot(kept.source)
    assert kept.copy() == copy


def test_a_damaged_copy_leaves_its_room_to_the_good_one(tmp_path: Path) -> None:
    """Though jobs count on it; one whose record is lost stays, for all that is known."""
    single = Node(tmp_path, write_file(tmp_path / "a.h5", 1 << 20))
    other = Node(tmp_path, write_file(tmp_path / "b.h5", 1 << 20))
    quota = ("--quota", "1M")
    for _ in range(2):
        rot(single.copy(*quota, key="running"))
        copy = single.copy(*quota)
        assert snapshot(copy) == snapshot(single.source)
    single.record.unlink()
    assert other.try_stage("--quota", "2M", key="other") == 0
    rot(other.copy("--quota", "2M"))
    assert other.try_stage(*quota, key="other") == 0
    assert snapshot(copy) == snapshot(single.source)


def test_clean_removes_what_is_damaged_though_a_job_counts_on_it(
    kept: Node, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Node(tmp_path, write_file(tmp_path / "a.h5", 1000))
    good = other.copy()
    copy = kept.copy()
    clean = ["clean", "--to", str(kept.scratch)]
    assert main([*clean, str(kept.source)], ENVIRON) == 0
    assert copy.exists()
    rot(copy / BIG)
    capsys.readouterr()
    assert main([*clean, "--all"], ENVIRON) == 0
    assert not copy.exists()
    assert good.exists()
    said = capsys.readouterr().out
    assert f"{kept.source}, damaged" in said
    assert str(other.source) not in said
    flipped(other.record, -1)
    assert main([*clean, "--all"], ENVIRON) == 0
    assert list(kept.cache.records.iterdir()) == []


@pytest.mark.parametrize(
    "trials", [20, pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])]
)
def test_whatever_happens_to_a_cache_no_wrong_tree_is_handed_out(
    node: Node, trials: int
) -> None:
    """Random harm between two stagings, of a source that changes or stays: what is handed
    out is right, and nothing that was harmed is in the way of it."""
    chance = random.Random(20261205)
    copy = node.copy()
    for trial in range(trials):
        harm_cache(copy, chance)
        change_source(node.source, chance)
        if trial % 50 == 49:  # or every trial has more copies to look through than the last
            assert main(["clean", "--to", str(node.scratch), "--all"], ENVIRON) == 0
        copy = node.copy()
        assert by_content(copy) == by_content(node.source), trial
        assert stray_names(node.cache.root) == [], trial
