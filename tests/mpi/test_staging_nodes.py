"""Staging between real MPI ranks: read once, equal everywhere, and all fail together."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import pytest

from mpi_environment import environment
from sbtrain_jobs.process import end_session, run_command, start_process
from sbtrain_staging.errors import ScratchError, SourceError, VerificationError, WorldError
from staging_trees import snapshot, stray_names, write_file, write_odd_tree

pytestmark = pytest.mark.mpi


def test_file_and_tree_are_read_once_and_equal_on_all_nodes(nodes, tmp_path: Path) -> None:
    file = write_file(tmp_path / "data.h5", 20 * (1 << 20) + 3)
    tree = write_odd_tree(tmp_path / "tree")
    events = tmp_path / "events.jsonl"
    report = nodes.stage(4, file, tree, extra=("--events", str(events)))
    told = [json.loads(line)["event"] for line in events.read_text().splitlines()]
    assert told == ["begin", "end", "begin", "end"]
    moved = sum(path.stat().st_size for path in (file, *tree.rglob("*")) if path.is_file())
    assert report.source_bytes_read <= moved
    assert [node.source_bytes_read for node in report.nodes[1:]] == [0, 0, 0]
    for rank, node in enumerate(report.nodes):
        assert node.node == f"c{rank + 1}"
        assert snapshot(Path(node.paths[0])) == snapshot(file)
        assert snapshot(Path(node.paths[1])) == snapshot(tree)
        assert stray_names(nodes.cache(rank)) == []
        assert node.bytes_received == report.source_bytes_read


def test_holes_stay_holes_and_are_not_read(nodes, tmp_path: Path) -> None:
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as stream:
        stream.truncate(1 << 30)
        stream.seek(500 << 20)
        stream.write(b"x" * 100)
    report = nodes.stage(2, sparse)
    assert report.dataset_bytes == 1 << 30
    assert report.source_bytes_read < 1 << 20
    for node in report.nodes:
        copy = Path(node.paths[0])
        assert copy.stat().st_size == 1 << 30
        assert copy.stat().st_blocks * 512 < 2 << 20
        with copy.open("rb") as stream:
            stream.seek(500 << 20)
            assert stream.read(101) == b"x" * 100 + b"\0"


def test_second_attempt_reads_nothing(nodes, tmp_path: Path) -> None:
    tree = write_odd_tree(tmp_path / "tree")
    first = nodes.stage(3, tree)
    second = nodes.stage(3, tree)
    assert first.source_bytes_read > 0
    assert second.source_bytes_read == 0
    assert [node.bytes_received for node in second.nodes] == [0, 0, 0]
    assert [node.paths for node in second.nodes] == [node.paths for node in first.nodes]


def test_a_new_node_is_fed_by_the_others(nodes, tmp_path: Path) -> None:
    tree = write_odd_tree(tmp_path / "tree")
    nodes.stage(3, tree)
    shutil.rmtree(nodes.cache(1))
    report = nodes.stage(3, tree)
    assert report.source_bytes_read == 0
    assert [node.bytes_received > 0 for node in report.nodes] == [False, True, False]
    assert snapshot(Path(report.nodes[1].paths[0])) == snapshot(tree)


def test_a_damaged_copy_is_made_anew(nodes, tmp_path: Path) -> None:
    file = write_file(tmp_path / "data.h5", 1 << 20)
    report = nodes.stage(2, file)
    Path(report.nodes[1].paths[0]).write_bytes(b"harmed")
    report = nodes.stage(2, file)
    assert report.source_bytes_read == 0
    assert snapshot(Path(report.nodes[1].paths[0])) == snapshot(file)


def test_a_changed_source_is_fetched_again(nodes, tmp_path: Path) -> None:
    file = write_file(tmp_path / "data.h5", 1000)
    nodes.stage(2, file)
    write_file(file, 1000, seed=1)
    report = nodes.stage(2, file)
    assert report.source_bytes_read == 1000
    assert snapshot(Path(report.nodes[1].paths[0])) == snapshot(file)


def test_a_missing_source_ends_all_with_one_message(nodes, tmp_path: Path) -> None:
    result = nodes.try_stage(4, tmp_path / "absent")
    assert result.returncode == SourceError.exit_code
    assert result.stderr.count("error:") == 1
    assert str(tmp_path / "absent") in result.stderr


def test_one_node_without_scratch_ends_all(nodes, tmp_path: Path) -> None:
    file = write_file(tmp_path / "data.h5", 1000)
    (nodes.folder / "scratch" / "c3").write_text("a file is in the way")
    result = nodes.try_stage(4, file)
    assert result.returncode == ScratchError.exit_code
    assert "node c3" in result.stderr
    assert result.stderr.count("error:") == 1


def test_several_ranks_on_a_node_are_refused(nodes, tmp_path: Path) -> None:
    file = write_file(tmp_path / "data.h5", 1000)
    twice = ("env", "SBTRAIN_NODE_NAME=c1", sys.executable, "-m", "sbtrain_staging")
    result = nodes.try_stage(2, file, programs={1: (*twice, *nodes.run_arguments(file))})
    assert result.returncode == WorldError.exit_code
    assert "several ranks on node c1" in result.stderr


@pytest.mark.parametrize("variable", ["SLURM_STEP_NUM_TASKS", "PMI_SIZE", "SLURM_NTASKS"])
def test_a_launcher_that_is_not_ours_is_noticed(nodes, tmp_path: Path, variable: str) -> None:
    """A wrong launcher makes every rank a world of one."""
    file = write_file(tmp_path / "data.h5", 1000)
    argv = ["env", f"{variable}=4", sys.executable, "-m", "sbtrain_staging"]
    started = time.monotonic()
    result = run_command([*argv, *nodes.run_arguments(file)], timeout_s=60, check="keep")
    assert result.returncode == WorldError.exit_code
    assert f"{variable} says 4 ranks" in result.stderr
    assert time.monotonic() - started < 60


def test_a_missing_mpi_library_is_one_line(nodes, tmp_path: Path) -> None:
    file = write_file(tmp_path / "data.h5", 1000)
    argv = ["env", "PMI_SIZE=2", "MPI4PY_LIBMPI=/no/libmpi.so", sys.executable]
    argv += ["-m", "sbtrain_staging", *nodes.run_arguments(file)]
    result = run_command(argv, timeout_s=60, check="keep")
    assert result.returncode == WorldError.exit_code
    assert "MPI cannot be loaded: cannot load MPI library" in result.stderr
    assert "# the extras staging and mpich" in result.stderr
    assert "Traceback" not in result.stderr


# Runs staging with one step replaced; argv[1] is the fault, the rest are staging's own.
_FAULTY = """
import os, sys
from pathlib import Path
fault = sys.argv.pop(1)
from sbtrain_staging import commandline
from sbtrain_staging.engine import disk
if fault == "full":
    def no_space(descriptor, data, offset):
        raise OSError(28, os.strerror(28))
    os.pwrite = no_space
elif fault == "flip":
    usual = disk.TreeWriter.write_chunk
    def flipped(self, chunk, data, digests, giver):
        data = memoryview(bytearray(data))
        data[0] ^= 1
        return usual(self, chunk, data, digests, giver)
    disk.TreeWriter.write_chunk = flipped
elif fault == "change":
    usual_read = disk.SourceReader.read_chunk
    def changing(self, chunk, into):
        usual_read(self, chunk, into)
        with open(sys.argv[-1], "r+b") as stream:
            stream.write(b"another")
    disk.SourceReader.read_chunk = changing
elif fault == "bug":
    def wrong(self, chunk, data, digests, giver):
        raise ZeroDivisionError("wrong")
    disk.TreeWriter.write_chunk = wrong
sys.exit(commandline.main())
"""


@pytest.mark.parametrize(
    ("fault", "rank", "code", "words"),
    [
        ("full", 2, ScratchError.exit_code, "node c3: No space left on device"),
        ("full", 0, ScratchError.exit_code, "node c1: No space left on device"),
        ("flip", 1, VerificationError.exit_code, "arrived damaged from node c1"),
        ("change", 0, SourceError.exit_code, "data.h5 changed at the source"),
        ("bug", 2, 30, "ZeroDivisionError: wrong"),
    ],
)
def test_a_fault_in_the_middle_ends_all(
    nodes, tmp_path: Path, fault: str, rank: int, code: int, words: str
) -> None:
    file = write_file(tmp_path / "data.h5", 40 << 20)
    program = (sys.executable, "-c", _FAULTY, fault, *nodes.run_arguments(file))
    started = time.monotonic()
    result = nodes.try_stage(4, file, programs={rank: program})
    assert time.monotonic() - started < 60
    assert result.returncode == code, result.stderr
    assert words in result.stderr
    assert result.stderr.count("sbtrain: error:") == 1
    for each in range(4):
        assert not list((nodes.cache(each) / "data").iterdir())
    if fault != "change":
        report = nodes.stage(4, file)
        assert all(snapshot(Path(n.paths[0])) == snapshot(file) for n in report.nodes)
        assert all(stray_names(nodes.cache(each)) == [] for each in range(4))


def test_shards_are_disjoint_balanced_and_read_once(nodes, tmp_path: Path) -> None:
    tree = write_odd_tree(tmp_path / "tree")
    files = {path.relative_to(tree) for path in tree.rglob("*") if is_file(path)}
    extra = ("--mode", "shard", "--order-seed", "3")
    report = nodes.stage(3, tree, extra=extra)
    assert report.mode == "shard"
    found: list[Path] = []
    for node in report.nodes:
        copy = Path(node.paths[0])
        found += [path.relative_to(copy) for path in copy.rglob("*") if is_file(path)]
        assert (copy / "latest").is_symlink()
        assert (copy / "no-entries").is_dir()
    assert sorted(found) == sorted(files)
    expected, whole = snapshot(tree), snapshot(Path(report.nodes[0].paths[0]))
    assert all(expected[path] == entry for path, entry in whole.items())
    assert report.source_bytes_read == sum(node.bytes_received for node in report.nodes)
    assert nodes.stage(3, tree, extra=extra).source_bytes_read == 0


def test_one_file_cannot_be_dealt_out(nodes, tmp_path: Path) -> None:
    file = write_file(tmp_path / "data.h5", 1000)
    result = nodes.try_stage(2, file, extra=("--mode", "shard"))
    assert result.returncode == SourceError.exit_code
    assert "no kind that can be cut into shards" in result.stderr


def is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def test_several_readers_share_the_reading(nodes, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for number in range(16):
        write_file(tree / f"{number:02}", 1 << 20)
    report = nodes.stage(4, tree, extra=("--readers", "4"))
    assert all(node.source_bytes_read > 0 for node in report.nodes)
    assert report.source_bytes_read == report.nodes[0].bytes_received
    assert all(snapshot(Path(node.paths[0])) == snapshot(tree) for node in report.nodes)


def test_two_jobs_at_once_read_the_source_once(nodes, tmp_path: Path) -> None:
    tree = write_odd_tree(tmp_path / "tree")
    argv = nodes.argv(3, nodes.run_arguments(tree), programs={})
    jobs = [start_process(argv, env=environment()) for _ in range(3)]
    try:
        assert [job.wait(timeout=120) for job in jobs] == [0, 0, 0]
    finally:
        for job in jobs:
            end_session(job)
            job.wait()
    report = nodes.stage(3, tree)
    assert report.source_bytes_read == 0
    for rank, node in enumerate(report.nodes):
        assert snapshot(Path(node.paths[0])) == snapshot(tree)
        assert stray_names(nodes.cache(rank)) == []
        assert len(list((nodes.cache(rank) / "data").iterdir())) == 1


def test_nodes_that_share_their_scratch_are_refused(nodes, tmp_path: Path) -> None:
    file = write_file(tmp_path / "data.h5", 1000)
    result = nodes.try_stage(3, file, extra=("--to", str(tmp_path / "scratch")))
    assert result.returncode == ScratchError.exit_code
    assert "share the folder" in result.stderr
    assert result.stderr.count("error:") == 1
