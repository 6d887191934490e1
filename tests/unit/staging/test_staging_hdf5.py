"""HDF5 files cut into shards: every kind of data set, put together byte by byte."""

from __future__ import annotations

import struct
import tarfile
from pathlib import Path

import pytest

from sbtrain_staging.engine.shards import Deal, share_of
from sbtrain_staging.errors import SourceError, StagingError
from sbtrain_staging.formats.hdf5_layout import Layout, layout_of
from sbtrain_staging.formats.hdf5_shards import all_parts, build, shard_rows
from sbtrain_staging.formats.record_files import record_runs
from sbtrain_staging.ranks.world import Solo
from sbtrain_staging.sources.manifest import Manifest
from sbtrain_staging.sources.scan import scan

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
numpy = pytest.importorskip("numpy", reason="numpy is not installed")

ROWS = 1003
CUT = ("train/x", "train/y", "names", "odd", "late", "pairs", "again/soft", "again/hard")


def write_all_kinds(path: Path, libver: str) -> Path:
    draw = numpy.random.default_rng(0)
    pair = numpy.dtype([("a", "i4"), ("b", "f8", (2,))])
    with h5py.File(path, "w", libver=libver) as file:
        x = draw.integers(0, 9, (ROWS, 20, 20))
        file.create_dataset("train/x", data=x, chunks=(10, 20, 10), compression="gzip")
        file.create_dataset("train/y", data=numpy.arange(ROWS), track_times=True)
        file.create_dataset("names", data=[f"n{number}" for number in range(ROWS)])
        file.create_dataset("odd", data=numpy.arange(ROWS), chunks=(7,), maxshape=(None,))
        file.create_dataset("late", shape=(ROWS, 4), chunks=(5, 4), fillvalue=7)
        file["late"][100:107] = 1
        file.create_dataset(
            "pairs", data=numpy.zeros(ROWS, pair), chunks=(2,), fletcher32=True, shuffle=True
        )
        file.create_dataset("test", data=draw.random((500, 100)), chunks=(50, 100))
        file.create_dataset("table", data=draw.random((300, 100)))
        file["mean"], file["scale"] = draw.random((20, 20)), 3.0
        file["nothing"] = h5py.Empty("f4")
        file.attrs["a"] = "hello"
        file["train"].attrs["b"] = numpy.arange(3)
        file["train/x"].attrs["c"] = ["x", "yy"]
        file["train/x"].attrs["place"] = file["mean"].ref
        again = file.create_group("again", track_order=True)
        again["soft"], again["hard"] = h5py.SoftLink("/train/x"), file["train/y"]
    return path


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("seed", [None, 3])
def test_every_kind_of_data_set(tmp_path: Path, libver: str, seed: int | None) -> None:
    source = write_all_kinds(tmp_path / "data.h5", libver)
    layout = Layout.from_bytes(layout_of(source, 3).to_bytes())
    content, parts = source.read_bytes(), set(all_parts(layout))
    assert {found.names[0]: found.how for found in layout.sets} == {
        "/again/hard": "cut",
        "/late": "cut",
        "/names": "sliced",
        "/odd": "sliced",
        "/pairs": "cut",
        "/table": "whole",
        "/test": "whole",
        "/train/x": "cut",
    }
    every = []
    for rank in range(3):
        shard = build(layout, Deal(rank=rank, size=3, seed=seed).mine(layout.blocks))
        made = bytearray(shard.size_bytes)
        for part in shard.parts:
            assert (part.origin, part.length) in parts
            made[part.place : part.place + part.length] = content[part.origin :][: part.length]
        for offset, structure in shard.structure:  # last: must not touch what came before
            made[offset : offset + len(structure)] = structure
        (tmp_path / "shard.h5").write_bytes(made)
        rows = numpy.concatenate([numpy.arange(*r) for r in shard_rows(tmp_path / "shard.h5")])
        every += list(rows)
        with h5py.File(source) as whole, h5py.File(tmp_path / "shard.h5") as found:
            for name in CUT:
                assert (found[name][...] == whole[name][...][rows]).all(), name
                assert found[name].dtype == whole[name].dtype
                assert found[name].chunks == whole[name].chunks
                assert found[name].compression == whole[name].compression
                assert found[name].fletcher32 == whole[name].fletcher32
            for name in ("test", "table", "mean", "scale"):
                assert (found[name][()] == whole[name][()]).all(), name
            assert found["nothing"].shape is None
            assert found["again/hard"] == found["train/y"]
            assert found.attrs["a"] == "hello"
            assert list(found["train"].attrs["b"]) == [0, 1, 2]
            assert list(found["train/x"].attrs["c"]) == ["x", "yy"]
            assert "place" not in found["train/x"].attrs
    assert sorted(every) == list(range(ROWS))


def test_large_data_sets_with_other_chunks_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbtrain_staging.formats.hdf5_layout.INLINE_BYTES_MOST", 1000)
    source = write_all_kinds(tmp_path / "data.h5", "latest")
    with pytest.raises(SourceError, match=r"cut at chunk borders|fewer than"):
        layout_of(source, 3)


def test_a_file_without_hdf5_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"no HDF5" * 100)
    with pytest.raises(SourceError, match=r"data\.bin is one file of no kind"):
        share_of(scan(tmp_path / "data.bin"), Solo(), seed=None, epoch=0)


def test_an_epoch_needs_a_seed(tmp_path: Path) -> None:
    with pytest.raises(StagingError, match="no seed"):
        share_of(scan(tmp_path), Solo(), seed=None, epoch=1)


def test_a_part_survives_packing(tmp_path: Path) -> None:
    share = share_of(
        scan(write_all_kinds(tmp_path / "data.h5", "latest")), Solo(), seed=1, epoch=2
    )
    again = Manifest.from_bytes(share.manifest.to_bytes())
    assert again.part == share.manifest.part
    assert again.origins == share.manifest.origins
    assert again.version == share.manifest.version
    assert again.version != share.whole.version


@pytest.mark.parametrize("count", [7, 8, 9, 100])
@pytest.mark.parametrize("seed", [None, 0, 5])
def test_parts_differ_by_one_block_at_most(count: int, seed: int | None) -> None:
    for epoch in (0, 1, 7):
        dealt = [
            Deal(rank=rank, size=4, seed=seed, epoch=epoch).mine(count) for rank in range(4)
        ]
        assert sorted(block for part in dealt for block in part) == list(range(count))
        sizes = [len(part) - 0.9 * (count - 1 in part) for part in dealt]  # the last is short
        assert max(sizes) - min(sizes) <= 1


def test_record_files_that_cannot_be_cut(tmp_path: Path) -> None:
    frame = struct.pack("<Q", 100) + b"1234" + bytes(100) + b"1234"
    cut_short = tmp_path / "data.tfrecord"
    cut_short.write_bytes(frame * 3 + frame[:50])
    with pytest.raises(SourceError, match="at byte 348"):
        record_runs(cut_short, "tfrecord", nodes=2)
    cut_short.write_bytes(frame)
    with pytest.raises(SourceError, match="1 records, too few"):
        record_runs(cut_short, "tfrecord", nodes=2)
    linked = tmp_path / "data.tar"
    (tmp_path / "one").write_bytes(b"x")
    (tmp_path / "two").hardlink_to(tmp_path / "one")
    with tarfile.open(linked, "w") as tar:
        tar.add(tmp_path / "one", "one")
        tar.add(tmp_path / "two", "two")
    with pytest.raises(SourceError, match="hard link"):
        record_runs(linked, "tar", nodes=1)
    (tmp_path / "data.tar").write_bytes(b"\x1f\x8b compressed")
    with pytest.raises(SourceError, match="no uncompressed tar"):
        record_runs(linked, "tar", nodes=1)
