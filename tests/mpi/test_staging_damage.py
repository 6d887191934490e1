"""Copies harmed between two runs of several nodes: neighbours are given what is whole, and the
harmed node is mended by them, or from the source."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from sbtrain_staging.errors import VerificationError
from sbtrain_staging.reports.run_report import read_report
from sbtrain_staging.sources.records import read_record, write_record
from staging_harm import by_content, change_source, harm_cache
from staging_trees import rot, snapshot, stray_names, write_file, write_odd_tree

pytestmark = pytest.mark.mpi
MIB = 1 << 20


@pytest.mark.parametrize("share", ["auto", "never"])
def test_rot_of_a_giver_reaches_nobody(nodes, tmp_path: Path, share: str) -> None:
    extra = ("--share", share)
    file = write_file(tmp_path / "data.h5", 40 * MIB)
    report = nodes.stage(1, file, extra=extra)
    rot(Path(report.nodes[0].paths[0]), at=20 * MIB)
    report = nodes.stage(3, file, extra=extra)
    assert report.source_bytes_read == 40 * MIB
    for rank, node in enumerate(report.nodes):
        assert snapshot(Path(node.paths[0])) == snapshot(file)
        assert stray_names(nodes.cache(rank)) == []


def test_a_harmed_node_is_mended_by_its_neighbours(nodes, tmp_path: Path) -> None:
    tree = write_odd_tree(tmp_path / "tree")
    report = nodes.stage(3, tree)
    copy = Path(report.nodes[1].paths[0])
    rot(copy / "train" / "a.tfrecord", at=7)
    (copy / "images" / "3" / "3.jpg").unlink()
    events = tmp_path / "events.jsonl"
    report = nodes.stage(3, tree, extra=("--events", str(events)))
    assert report.source_bytes_read == 0
    harmed = ("train/a.tfrecord", "images/3/3.jpg")
    lost = sum((tree / name).stat().st_size for name in harmed)
    assert [node.bytes_received for node in report.nodes] == [0, lost, 0]
    assert all(node.checked_bytes > 17 * MIB for node in report.nodes)
    told = [json.loads(line) for line in events.read_text().splitlines()]
    assert [(one["event"], one["title"].split()[0]) for one in told] == [
        ("begin", "checking"),
        ("end", "checking"),
        ("begin", "staging"),
        ("end", "staging"),
    ]
    for rank, node in enumerate(report.nodes):
        assert snapshot(Path(node.paths[0])) == snapshot(tree)
        assert stray_names(nodes.cache(rank)) == []


def test_rot_that_linked_nodes_share_is_mended_on_all(nodes, tmp_path: Path) -> None:
    tree = write_odd_tree(tmp_path / "tree")
    share = ("--share", "auto")
    report = nodes.stage(3, tree, extra=share)
    for node in report.nodes:
        rot(Path(node.paths[0]) / "train" / "b.tfrecord", at=3)  # one inode: an odd number
    rot(Path(report.nodes[2].paths[0]) / "images" / "3" / "3.jpg")
    report = nodes.stage(4, tree, extra=share)
    for rank, node in enumerate(report.nodes):
        assert snapshot(Path(node.paths[0])) == snapshot(tree)
        assert stray_names(nodes.cache(rank)) == []


def test_nodes_that_disagree_ask_the_source(nodes, tmp_path: Path) -> None:
    """A record and a copy that fit each other, and not the copies of the others: what a node
    once read wrongly."""
    file = write_file(tmp_path / "data.h5", MIB)
    report = nodes.stage(2, file)
    shutil.rmtree(nodes.cache(1))
    _forge(nodes.cache(0), Path(report.nodes[0].paths[0]))
    shutil.copytree(nodes.cache(0), tmp_path / "wrong")
    shutil.rmtree(nodes.cache(0))
    nodes.stage(1, file)
    (tmp_path / "wrong").rename(nodes.cache(1))
    shutil.rmtree(nodes.cache(2), ignore_errors=True)
    result = nodes.try_stage(3, file)
    assert result.returncode == VerificationError.exit_code
    assert "hold different copies" in result.stderr
    report = nodes.stage(3, file)
    assert report.source_bytes_read == MIB
    assert all(snapshot(Path(node.paths[0])) == snapshot(file) for node in report.nodes)


def _forge(cache: Path, copy: Path) -> None:
    """Change a copy, and its record with it."""
    from sbtrain_staging.sources.hashing import digest
    from sbtrain_staging.sources.pieces import PieceTable

    rot(copy)
    (record,) = (cache / "records").iterdir()
    _, manifest, _ = read_record(record)
    digests = {0: digest(copy.read_bytes())}
    content = manifest.content_id(PieceTable(manifest).file_digests(digests))
    copy.parent.rename(copy.parent.with_name(content))
    write_record(record, manifest, content, digests)


def test_a_rotten_part_is_neither_kept_nor_exchanged(nodes, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    from sbtrain_staging.formats.hdf5_shards import shard_rows

    source = tmp_path / "data.h5"
    with h5py.File(source, "w") as file:
        file["x"] = numpy.random.default_rng(0).random((2000, 100))
        file["names"] = [f"row {number}" for number in range(2000)]
    chance = random.Random(3)
    shard = ("--mode", "shard", "--order-seed", "7")
    report = nodes.stage(3, source, extra=shard)
    for epoch in (0, 0, 1, 1, 2):
        for node in report.nodes[:2]:
            path = Path(node.paths[0])
            rot(path, at=chance.randrange(path.stat().st_size))
        report = nodes.stage(3, source, extra=(*shard, *(("--epoch", "1") if epoch else ())))
        rows = []
        with h5py.File(source) as whole:
            for node in report.nodes:
                mine = numpy.concatenate(
                    [numpy.arange(*pair) for pair in shard_rows(node.paths[0])]
                )
                rows += list(mine)
                with h5py.File(node.paths[0]) as part:
                    for name in ("x", "names"):
                        assert (part[name][...] == whole[name][...][mine]).all()
        assert sorted(rows) == list(range(2000))


@pytest.mark.parametrize(
    "trials", [6, pytest.param(400, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])]
)
def test_whatever_happens_to_the_caches_no_wrong_tree_is_handed_out(
    nodes, tmp_path: Path, trials: int
) -> None:
    """Random harm between two stagings, of a source that changes or stays."""
    chance = random.Random(20261204)
    tree = write_odd_tree(tmp_path / "tree")
    report = nodes.stage(3, tree)
    for trial in range(trials):
        for node in report.nodes:
            harm_cache(Path(node.paths[0]), chance)
        change_source(tree, chance)
        extra = ("--share", chance.choice(("auto", "never")))
        result = nodes.try_stage(chance.randrange(1, 4), tree, extra=extra)
        assert result.returncode == 0, (trial, result.stderr)
        report = read_report(nodes.report_path)
        expected = by_content(tree)
        for rank, node in enumerate(report.nodes):
            assert by_content(Path(node.paths[0])) == expected, trial
            assert stray_names(nodes.cache(rank)) == [], trial
