"""Training reads rows while staging brings the rest: TensorFlow, PyTorch, plain h5py."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sbtrain_jobs.process import end_session, start_process
from sbtrain_staging.errors import SourceError
from sbtrain_staging.formats.hdf5_shards import shard_rows
from sbtrain_staging.readers.reader import StagedData, open_staged
from sbtrain_staging.readers.row_batches import open_hdf5, row_batches
from sbtrain_staging.readers.streaming import StreamedFile

h5py = pytest.importorskip("h5py", reason="h5py is not installed")
numpy = pytest.importorskip("numpy", reason="numpy is not installed")

pytestmark = pytest.mark.mpi
SHARD = ("--mode", "shard", "--order-seed", "7")

# Staging of which each rank reads no more than so many bytes until a file is there.
HELD = """
import sys, time
from pathlib import Path
from sbtrain_staging.engine import disk
fill, got = disk.SourceReader._fill, 0
def held_fill(self, descriptor, index, into, offset):
    global got
    while got + len(into) > {held_bytes} and not Path({go!r}).exists():
        time.sleep(0.01)
    got += len(into)
    return fill(self, descriptor, index, into, offset)
disk.SourceReader._fill = held_fill
from sbtrain_staging.commandline import main
sys.exit(main(sys.argv[1:]))
"""


def write_rows(path: Path, *, rows: int = 4000, chunks=(50, 64, 64)) -> Path:
    draw = numpy.random.default_rng(0)
    with h5py.File(path, "w") as file:
        data = draw.integers(0, 255, (rows, 64, 64), dtype="uint8")
        file.create_dataset("x", data=data, chunks=chunks)
        file.create_dataset("y", data=numpy.arange(rows))
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldStaging:
    """Staging that cannot end before it is let go."""

    process: subprocess.Popen[bytes]
    go: Path

    def let_go(self) -> None:
        self.go.touch()

    def ends(self) -> bool:
        return self.process.wait(timeout=60) == 0


@contextmanager
def held_staging(
    nodes, source: Path, *, extra=SHARD, held_bytes: int = 5 << 20
) -> Iterator[HeldStaging]:
    go = nodes.folder / "go"
    program = (sys.executable, "-c", HELD.format(held_bytes=held_bytes, go=str(go)))
    arguments = nodes.run_arguments(source, extra=extra)
    programs = dict.fromkeys(range(2), (*program, *arguments))
    argv = nodes.argv(2, arguments, programs=programs)
    process = start_process(argv, stdout=subprocess.DEVNULL)
    try:
        yield HeldStaging(process=process, go=go)
    finally:
        end_session(process)
        process.wait()


def test_the_first_rows_of_a_part_come_long_before_the_last(nodes, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "data.h5")
    with held_staging(nodes, source) as staging, h5py.File(source) as whole:
        data = open_staged(nodes.folder / "scratch" / "c2", source)
        labels = []
        for images, numbers in row_batches(data, ("x", "y"), rows=50, seed=7):
            staging.let_go()
            assert (images == whole["x"][...][numbers]).all()
            labels += list(numbers)
        assert staging.ends()
    rows = numpy.concatenate([numpy.arange(*pair) for pair in shard_rows(data.path())])
    assert sorted(labels) == list(rows)


def test_the_first_rows_of_a_whole_file_come_before_the_last(nodes, tmp_path: Path) -> None:
    # Of a chunked one the index lies about, some of it at the end.
    source = write_rows(tmp_path / "data.h5", rows=16000, chunks=None)
    held = held_staging(nodes, source, extra=(), held_bytes=40 << 20)
    with held as staging, h5py.File(source) as whole:
        data = open_staged(nodes.folder / "scratch" / "c1", source)  # c2 links it
        count = 0
        for (images,) in row_batches(data, ("x",), rows=50):
            staging.let_go()
            assert (images == whole["x"][count : count + 50]).all()
            count += 50
        assert staging.ends()
    assert count == 16000


def test_plain_h5py_waits_for_the_rows_that_it_reads(nodes, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "data.h5")
    with held_staging(nodes, source) as staging, h5py.File(source) as whole:
        data = open_staged(nodes.folder / "scratch" / "c1", source, epoch=0)
        with open_hdf5(data) as file:
            threading.Timer(0.5, staging.let_go).start()
            rows = numpy.concatenate(
                [numpy.arange(*pair) for pair in file.attrs["sbtrain_rows"]]
            )
            assert file["x"].shape == (len(rows), 64, 64)
            assert (file["x"][-1] == whole["x"][rows[-1]]).all()
            assert (file["x"][0] == whole["x"][rows[0]]).all()


def staged(nodes, source: Path, extra=SHARD) -> StagedData:
    nodes.stage(2, source, extra=extra)
    return open_staged(nodes.folder / "scratch" / "c1", source)


def test_a_seed_draws_every_row_once(nodes, tmp_path: Path) -> None:
    data = staged(nodes, write_rows(tmp_path / "data.h5"))
    plain = [y for (found,) in row_batches(data, ("y",), rows=30) for y in found]
    drawn = [y for (found,) in row_batches(data, ("y",), rows=30, seed=1) for y in found]
    again = [y for (found,) in row_batches(data, ("y",), rows=30, seed=1) for y in found]
    other = [y for (found,) in row_batches(data, ("y",), rows=30, seed=2) for y in found]
    assert drawn == again
    assert drawn not in (plain, other)
    assert sorted(drawn) == sorted(other) == plain
    with pytest.raises(SourceError, match="no data set 'z'"):
        next(row_batches(data, ("z",), rows=30))


def test_the_next_epoch_is_another_part(nodes, tmp_path: Path) -> None:
    source = write_rows(tmp_path / "data.h5")
    staged(nodes, source)
    report = nodes.stage(2, source, extra=(*SHARD, "--epoch", "1"))
    assert report.source_bytes_read == 0
    scratch = nodes.folder / "scratch" / "c1"
    rows = [shard_rows(open_staged(scratch, source, epoch=epoch).path()) for epoch in (0, 1)]
    assert rows[0] != rows[1]


@pytest.mark.slow
@pytest.mark.tensorflow
def test_tensorflow_trains_on_rows_that_still_come(nodes, tmp_path: Path) -> None:
    tensorflow = pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    from sbtrain_staging.readers.tf_rows import tf_rows

    source = write_rows(tmp_path / "data.h5")
    with held_staging(nodes, source) as staging:
        data = open_staged(nodes.folder / "scratch" / "c2", source)
        labels = []
        weight = tensorflow.Variable(tensorflow.zeros((64 * 64, 1)))
        for images, numbers in tf_rows(data, ("x", "y"), rows=50, seed=7):
            flat = tensorflow.reshape(tensorflow.cast(images, "float32") / 255, (-1, 64 * 64))
            with tensorflow.GradientTape() as tape:
                loss = tensorflow.reduce_mean((flat @ weight - 1) ** 2)
            weight.assign_sub(1e-4 * tape.gradient(loss, weight))
            staging.let_go()
            labels += list(numbers.numpy())
        assert staging.ends()
    assert sorted(labels) == sorted(set(labels))
    assert len(labels) == 2000


@pytest.mark.slow
def test_torch_reads_rows_that_still_come(nodes, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from torch.utils.data import DataLoader

    from sbtrain_staging.readers.torch_rows import TorchRows

    source = write_rows(tmp_path / "data.h5")
    with held_staging(nodes, source) as staging:
        scratch = nodes.folder / "scratch" / "c1"
        rows = TorchRows(scratch, source, ("x", "y"), rows=50, epoch=0, seed=7)
        labels = []
        for images, numbers in DataLoader(rows, batch_size=None):
            staging.let_go()
            assert images.shape[1:] == (64, 64)
            labels += numbers.tolist()
        assert staging.ends()
    split = [y for batch in DataLoader(rows, batch_size=None, num_workers=2) for y in batch[1]]
    assert sorted(labels) == sorted(int(y) for y in split)
    assert len(set(labels)) == 2000


def test_streamed_files_are_read_in_large_blocks(tmp_path: Path) -> None:
    source = write_rows(tmp_path / "data.h5")
    with h5py.File(source) as whole, StreamedFile(source) as stream:
        with h5py.File(stream, "r") as file:
            for row in range(4000):
                assert (file["x"][row, 0] == whole["x"][row, 0]).all()
        blocks = -(-source.stat().st_size // stream.block_bytes)
        assert stream.reads <= 2 * blocks
