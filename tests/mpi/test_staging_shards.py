"""Shards on real MPI ranks: HDF5 cut at chunks, record files at records, and exchanged."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import tarfile
import time
from pathlib import Path

import pytest

from mpi_environment import environment
from sbtrain_jobs.process import end_session, start_process
from sbtrain_staging.errors import SourceError
from sbtrain_staging.formats.hdf5_shards import shard_rows
from sbtrain_staging.reports.run_report import StagingReport
from staging_trees import stray_names, write_file

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
numpy = pytest.importorskip("numpy", reason="numpy is not installed")

pytestmark = pytest.mark.mpi
ROWS = 1003
SHARD = ("--mode", "shard", "--order-seed", "7")


def write_images(path: Path, *, side: int = 32) -> Path:
    draw = numpy.random.default_rng(0)
    with h5py.File(path, "w") as file:
        file.create_dataset(
            "train/x",
            data=draw.integers(0, 255, (ROWS, side, side), dtype="uint8"),
            chunks=(10, side, side // 2),
            compression="gzip",
            shuffle=True,
        )
        file.create_dataset("train/y", data=numpy.arange(ROWS))
        file["names"] = [f"image {number}" for number in range(ROWS)]
        file["mean"] = draw.random((32, 32))
        file.create_dataset("test", data=draw.random((200, 100)), chunks=(50, 100))
        file.attrs["made by"] = "a test"
        file["train/x"].attrs["classes"] = ["cat", "dog"]
    return path


def rows_of(path: str) -> object:
    return numpy.concatenate([numpy.arange(*pair) for pair in shard_rows(path)])


def check_shards(report: StagingReport, source: Path) -> list[object]:
    """All shards hold together each row once, equal to the source; the rows of each."""
    every = []
    with h5py.File(source) as whole:
        for node in report.nodes:
            rows = rows_of(node.paths[0])
            every.append(rows)
            with h5py.File(node.paths[0]) as shard:
                for name in ("train/x", "train/y", "names"):
                    assert (shard[name][...] == whole[name][...][rows]).all(), name
                    assert shard[name].chunks == whole[name].chunks
                    assert shard[name].dtype == whole[name].dtype
                    assert shard[name].compression == whole[name].compression
                for name in ("mean", "test"):
                    assert (shard[name][...] == whole[name][...]).all(), name
                assert shard.attrs["made by"] == "a test"
                assert list(shard["train/x"].attrs["classes"]) == ["cat", "dog"]
    together = numpy.sort(numpy.concatenate(every))
    assert (together == numpy.arange(ROWS)).all()
    counts = [len(rows) for rows in every]
    assert max(counts) - min(counts) <= 10
    return every


def test_hdf5_is_cut_at_chunks_and_read_once(nodes, tmp_path: Path) -> None:
    source = write_images(tmp_path / "data.h5")
    report = nodes.stage(3, source, extra=SHARD)
    rows = check_shards(report, source)
    assert report.source_bytes_read <= source.stat().st_size
    assert all(Path(n.paths[0]).stat().st_size < source.stat().st_size for n in report.nodes)
    again = nodes.stage(3, source, extra=SHARD)
    assert again.source_bytes_read == 0
    assert [node.bytes_received for node in again.nodes] == [0, 0, 0]
    assert [list(rows_of(n.paths[0])) for n in again.nodes] == [list(found) for found in rows]


def test_hdf5_shards_are_exchanged_not_read_again(nodes, tmp_path: Path) -> None:
    source = write_images(tmp_path / "data.h5")
    before = check_shards(nodes.stage(3, source, extra=SHARD), source)
    for epoch in ("1", "2", "3"):
        report = nodes.stage(3, source, extra=(*SHARD, "--epoch", epoch))
        now = check_shards(report, source)
        assert report.source_bytes_read == 0
        assert [set(rows) for rows in now] != [set(rows) for rows in before]
        before = now
    for rank in range(3):
        assert len(list((nodes.cache(rank) / "data").iterdir())) == 2
        assert stray_names(nodes.cache(rank)) == []


def test_a_lost_shard_alone_is_read_again(nodes, tmp_path: Path) -> None:
    import shutil

    source = write_images(tmp_path / "data.h5")
    first = nodes.stage(3, source, extra=SHARD)
    shutil.rmtree(nodes.cache(1))
    report = nodes.stage(3, source, extra=SHARD)
    check_shards(report, source)
    assert report.nodes[0].source_bytes_read == report.nodes[2].source_bytes_read == 0
    assert 0 < report.source_bytes_read < 0.5 * first.source_bytes_read


def test_another_number_of_nodes_shares_what_is_there(nodes, tmp_path: Path) -> None:
    source = write_images(tmp_path / "data.h5")
    nodes.stage(4, source, extra=SHARD)
    report = nodes.stage(2, source, extra=SHARD)
    check_shards(report, source)
    assert 0 < report.source_bytes_read < 0.6 * source.stat().st_size


def test_files_of_a_tree_are_exchanged(nodes, tmp_path: Path) -> None:
    for number in range(60):
        write_file(tmp_path / "tree" / f"{number:02}", 5000 * (1 + number % 9))
    tree = tmp_path / "tree"
    nodes.stage(3, tree, extra=SHARD)
    report = nodes.stage(3, tree, extra=(*SHARD, "--epoch", "1"))
    assert report.source_bytes_read == 0
    seen = {}
    for node in report.nodes:
        for path in Path(node.paths[0]).iterdir():
            assert path.name not in seen
            seen[path.name] = path.read_bytes()
    assert seen == {path.name: path.read_bytes() for path in tree.iterdir()}


def test_records_and_members_stay_whole(nodes, tmp_path: Path) -> None:
    draw = random.Random(1)
    bodies = [draw.randbytes(draw.randrange(1, 3000)) for _ in range(400)]
    records = tmp_path / "data.tfrecord"
    records.write_bytes(
        b"".join(struct.pack("<Q", len(b)) + b"crc1" + b + b"crc2" for b in bodies)
    )
    archive = tmp_path / "data.tar"
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for number, body in enumerate(bodies):
            path = tmp_path / "member"
            path.write_bytes(body)
            tar.add(path, f"{'long/' * (30 if number % 7 == 0 else 1)}{number}")
    report = nodes.stage(3, records, archive, extra=SHARD)
    assert report.source_bytes_read <= records.stat().st_size + archive.stat().st_size
    found, members = [], []
    for node in report.nodes:
        content, at = Path(node.paths[0]).read_bytes(), 0
        while at < len(content):
            end = at + 16 + struct.unpack_from("<Q", content, at)[0]
            found.append(content[at + 12 : end - 4])
            at = end
        with tarfile.open(node.paths[1]) as tar:
            members += [
                (int(m.name.rsplit("/")[-1]), tar.extractfile(m).read())
                for m in tar.getmembers()
            ]
    assert sorted(found) == sorted(bodies)
    assert sorted(members) == list(enumerate(bodies))
    second = nodes.stage(3, records, archive, extra=(*SHARD, "--epoch", "1"))
    assert second.source_bytes_read == 0


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda f: f.create_dataset("x", data=numpy.zeros((8, 4)), chunks=(8, 4)), "1 blocks"),
        (lambda f: f.create_dataset("x", data=3.0), "no data set with rows"),
        (lambda f: f.update({"x": h5py.ExternalLink("other.h5", "/x")}), "links to other.h5"),
        (
            lambda f: f.create_dataset("x", (9,), "f8", external=[("raw", 0, 72)]),
            "in other files",
        ),
        (
            lambda f: f.create_virtual_dataset("x", h5py.VirtualLayout((4,), "f8")),
            "virtual data set",
        ),
    ],
)
def test_what_cannot_be_cut_is_refused(
    nodes, tmp_path: Path, make, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        make(file)
    result = nodes.try_stage(2, tmp_path / "data.h5", extra=SHARD)
    assert result.returncode == SourceError.exit_code
    assert why in result.stderr
    assert "--mode replicate" in result.stderr


def test_streaming_copies_nothing(nodes, tmp_path: Path) -> None:
    source = write_file(tmp_path / "data.h5", 100_000)
    report = nodes.stage(2, source, extra=("--mode", "stream"))
    assert report.mode == "stream"
    assert report.source_bytes_read == 0
    assert [node.paths for node in report.nodes] == [(str(source),)] * 2
    assert os.listdir(nodes.folder / "scratch") == []  # noqa: PTH208


@pytest.mark.parametrize(
    "trials", [2, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_a_kill_in_the_middle_of_an_exchange_loses_nothing(
    nodes, tmp_path: Path, trials: int
) -> None:
    chance = random.Random(5)
    source = write_images(tmp_path / "data.h5", side=160)
    started = time.monotonic()
    nodes.stage(3, source, extra=SHARD)
    longest_s = time.monotonic() - started
    epoch = hits = 0
    while epoch < trials or (hits < trials // 3 and epoch < 4 * trials):
        epoch += 1
        extra = (*SHARD, "--epoch", str(epoch))
        argv = nodes.argv(3, nodes.run_arguments(source, extra=extra), programs={})
        quiet = subprocess.DEVNULL
        process = start_process(argv, env=environment(), stderr=quiet, stdout=quiet)
        try:
            time.sleep(chance.uniform(0.2, 1.0) * longest_s)
            hits += process.poll() is None
        finally:
            end_session(process)
            process.wait()
        report = nodes.stage(3, source, extra=extra)
        check_shards(report, source)
        for rank in range(3):
            assert stray_names(nodes.cache(rank)) == []
    assert hits >= trials // 3
