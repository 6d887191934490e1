"""Nodes on one filesystem: each copies a share, hard links the rest, and owns its copy."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from sbtrain_staging.reports.run_report import read_report
from staging_trees import snapshot, stray_names, write_file, write_odd_tree

pytestmark = pytest.mark.mpi
SHARE = ("--share", "auto")
MIB = 1 << 20


def inodes(paths: list[str]) -> set[int]:
    return {Path(path).stat().st_ino for path in paths}


def write_files(tree: Path, count: int, size_bytes: int) -> Path:
    for number in range(count):
        write_file(tree / f"{number:03}", size_bytes)
    return tree


def test_a_file_is_copied_once_and_linked(nodes, tmp_path: Path) -> None:
    file = write_file(tmp_path / "data.h5", 20 * MIB + 3)
    report = nodes.stage(4, file, extra=SHARE)
    assert [node.bytes_received for node in report.nodes] == [20 * MIB + 3, 0, 0, 0]
    assert [node.linked_bytes for node in report.nodes] == [0, *[20 * MIB + 3] * 3]
    assert len(inodes([node.paths[0] for node in report.nodes])) == 1
    for rank, node in enumerate(report.nodes):
        assert snapshot(Path(node.paths[0])) == snapshot(file)
        assert stray_names(nodes.cache(rank)) == []


def test_every_node_copies_a_share_of_a_tree(nodes, tmp_path: Path) -> None:
    tree = write_files(tmp_path / "tree", 24, MIB)
    report = nodes.stage(3, tree, extra=SHARE)
    received = [node.bytes_received for node in report.nodes]
    assert received == [8 * MIB] * 3
    assert [node.linked_bytes for node in report.nodes] == [16 * MIB] * 3
    assert report.source_bytes_read == 24 * MIB
    for node in report.nodes:
        assert snapshot(Path(node.paths[0])) == snapshot(tree)


def test_odd_trees_and_a_second_attempt(nodes, tmp_path: Path) -> None:
    tree = write_odd_tree(tmp_path / "tree")
    report = nodes.stage(4, tree, extra=SHARE)
    for rank, node in enumerate(report.nodes):
        assert snapshot(Path(node.paths[0])) == snapshot(tree)
        assert stray_names(nodes.cache(rank)) == []
    again = nodes.stage(4, tree, extra=SHARE)
    assert again.source_bytes_read == 0
    assert [node.linked_bytes for node in again.nodes] == [0, 0, 0, 0]


def test_never_moves_the_data(nodes, tmp_path: Path) -> None:
    file = write_file(tmp_path / "data.h5", MIB)
    report = nodes.stage(2, file, extra=("--share", "never"))
    assert [node.bytes_received for node in report.nodes] == [MIB, MIB]
    assert len(inodes([node.paths[0] for node in report.nodes])) == 2


def test_a_copy_outlives_its_neighbours(nodes, tmp_path: Path) -> None:
    tree = write_odd_tree(tmp_path / "tree")
    report = nodes.stage(3, tree, extra=SHARE)
    shutil.rmtree(nodes.cache(0))
    assert snapshot(Path(report.nodes[1].paths[0])) == snapshot(tree)
    again = nodes.stage(3, tree, extra=SHARE)
    assert again.source_bytes_read == 0
    assert [node.bytes_received for node in again.nodes] == [0, 0, 0]
    assert [node.linked_bytes > 0 for node in again.nodes] == [True, False, False]
    assert snapshot(Path(again.nodes[0].paths[0])) == snapshot(tree)


def test_a_changed_file_leaves_the_older_version_whole(nodes, tmp_path: Path) -> None:
    tree = write_files(tmp_path / "tree", 2, 1000)
    older = nodes.stage(2, tree, extra=SHARE)
    before = (Path(older.nodes[0].paths[0]) / "000").read_bytes()
    kept = os.open(Path(older.nodes[1].paths[0]) / "000", os.O_RDONLY)
    (tree / "000").write_bytes(b"new")
    newer = nodes.stage(2, tree, extra=SHARE)
    assert newer.source_bytes_read == 3
    assert sum(node.linked_bytes for node in newer.nodes) == 3
    assert os.pread(kept, 2000, 0) == before
    os.close(kept)
    for node in newer.nodes:
        assert snapshot(Path(node.paths[0])) == snapshot(tree)


def test_links_that_fail_leave_the_ordinary_way(nodes, tmp_path: Path) -> None:
    """One node's links stop working after they were tried."""
    tree = write_files(tmp_path / "tree", 12, MIB)
    program = tmp_path / "unlucky.py"
    program.write_text(
        "import sys\n"
        "from sbtrain_staging.engine import partial\n"
        "def link(self, path, source):\n"
        "    if path.endswith(b'5'):\n"
        "        raise OSError(31, 'Too many links')\n"
        "    right(self, path, source)\n"
        "right = partial.PartialCopy._link\n"
        "partial.PartialCopy._link = link\n"
        "from sbtrain_staging.commandline import main\n"
        "sys.exit(main())\n"
    )
    unlucky = (sys.executable, str(program), *nodes.run_arguments(tree, extra=SHARE))
    result = nodes.try_stage(3, tree, extra=SHARE, programs={2: unlucky})
    assert result.returncode == 0, result.stderr
    assert "no links to neighbours' files on c3" in result.stderr
    report = read_report(nodes.report_path)
    assert report.source_bytes_read == 12 * MIB
    assert sum(node.bytes_received for node in report.nodes) > 12 * MIB
    for rank, node in enumerate(report.nodes):
        assert snapshot(Path(node.paths[0])) == snapshot(tree)
        assert stray_names(nodes.cache(rank)) == []
