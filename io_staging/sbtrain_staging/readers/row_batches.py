"""Rows of an HDF5 file in batches, each as soon as it is on this node.

    data = open_staged(scratch, "/shared/train.h5")        # whole, or this node's part
    for images, labels in row_batches(data, ("x", "y"), rows=64): ...

Rows come in the order of the file, or, with a seed, block by block in an order that all know,
shuffled within each block: the order in which `run --mode shard --order-seed` has them come,
where the seed is the same. Blocks follow the chunks, so a chunk is unpacked once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sbtrain_staging.errors import SourceError, StagingError
from sbtrain_staging.readers.reader import START_GRACE_S, StagedData, StagedFile
from sbtrain_staging.sources.order import epoch_order

if TYPE_CHECKING:
    import h5py
    import numpy

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_BLOCK_BYTES = 8 << 20


def open_hdf5(data: StagedData, name: str = "") -> h5py.File:
    """Open an HDF5 file that may still be coming; reading a row waits for that row.

    Raises:
        StagingError: staging ended before the file began.
    """
    import h5py

    file = data.file(name)
    _wait_for_structure(file, name)
    return h5py.File(file, "r")


def _wait_for_structure(file: StagedFile, name: str) -> None:
    """A part's structure is written once its file is there, the first bytes last."""
    deadline = time.monotonic() + START_GRACE_S
    while True:
        file.seek(0)
        if file.read(len(_SIGNATURE)) == _SIGNATURE:
            return
        if time.monotonic() > deadline:
            raise StagingError(f"{name or 'the file'} does not begin like HDF5")
        time.sleep(0.01)


def row_batches(
    data: StagedData,
    names: Sequence[str],
    *,
    rows: int,
    file: str = "",
    seed: int | None = None,
    turn: tuple[int, int] = (0, 1),
) -> Iterator[tuple[numpy.ndarray, ...]]:
    """Batches of the same rows of some data sets.

    Args:
        names: of data sets, all of the same length.
        rows: in a batch; the last may be smaller.
        file: within the source, where that is a tree.
        seed: shuffles blocks, and rows within them; None keeps the order of the file.
        turn: (k, n): only every n-th block from the k-th on, for n readers on one node.

    Raises:
        SourceError: data sets are missing or differ in length.
        StagingError: staging ended without the rows.
    """
    import numpy

    with open_hdf5(data, file) as opened:
        sets = _sets(opened, names)
        kept: list[list[numpy.ndarray]] = []
        waiting = 0
        for first, end, draw in _blocks(sets, seed, turn):
            block = [found[first:end] for found in sets]
            if draw is not None:
                order = numpy.array(draw)
                block = [part[order] for part in block]
            kept.append(block)
            waiting += end - first
            if waiting >= rows:
                joined = _joined(kept)
                full = waiting - waiting % rows
                for at in range(0, full, rows):
                    yield tuple(part[at : at + rows] for part in joined)
                kept = [[part[full:] for part in joined]]
                waiting -= full
        if waiting:
            yield tuple(_joined(kept))


def _joined(kept: Sequence[Sequence[numpy.ndarray]]) -> list[numpy.ndarray]:
    import numpy

    return [numpy.concatenate(parts) for parts in zip(*kept)]


def _sets(opened: h5py.File, names: Sequence[str]) -> list[h5py.Dataset]:
    missing = [name for name in names if name not in opened]
    if missing or not names:
        raise SourceError(f"{opened.filename!r} holds no data set {', '.join(missing)!r}")
    sets = [opened[name] for name in names]
    lengths = {len(found) for found in sets}
    if len(lengths) > 1:
        raise SourceError(f"{', '.join(names)} differ in length: {sorted(lengths)}")
    return sets


def _blocks(
    sets: Sequence[h5py.Dataset], seed: int | None, turn: tuple[int, int]
) -> Iterator[tuple[int, int, list[int] | None]]:
    """First row, end, and order within, of each block."""
    leader = max(sets, key=lambda found: int(found.nbytes))
    count = len(leader)
    row_bytes = max(1, int(leader.nbytes) // max(1, count))
    step = leader.chunks[0] if leader.chunks else max(1, _BLOCK_BYTES // row_bytes)
    places = list(range(0, count, step))
    if seed is not None:
        places = [places[place] for place in epoch_order(len(places), seed)]
    for first in places[turn[0] :: turn[1]]:
        end = min(count, first + step)
        draw: list[int] | None = None
        if seed is not None:
            draw = list(range(end - first))
            random.Random(f"{seed} {first}").shuffle(draw)  # noqa: S311
        yield first, end, draw
