"""One node's share of an HDF5 file: a smaller HDF5 file with some of the rows.

The names, types, attributes, layout and filters are those of the source. The root attribute
`sbtrain_rows` says which rows they are: pairs of first row and end, in the order of the
shard. Every node builds the structure for itself; the raw chunks come as pieces.
"""

from __future__ import annotations

import bisect
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain_staging.errors import StagingError
from sbtrain_staging.formats.hdf5_image import SparseImage
from sbtrain_staging.formats.hdf5_layout import Hdf5Rows, Layout, make_empty

if TYPE_CHECKING:
    import h5py

ROWS_ATTRIBUTE = "sbtrain_rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRows:
    """A part of the source's file and its place in the shard.

    Attributes:
        block: number among the shard's blocks of rows; past them where it is of no row.
    """

    origin: int
    place: int
    length: int
    block: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One node's file before its data comes.

    Attributes:
        rows: (first row, end) of the source, in the order of the shard.
        parts: sorted by place.
        structure: offset and content of what is no raw data.
    """

    rows: tuple[tuple[int, int], ...]
    size_bytes: int
    parts: tuple[MovedRows, ...]
    structure: tuple[tuple[int, bytes], ...]


def all_parts(layout: Layout) -> list[tuple[int, int]]:
    """(offset, length) in the source of all that moves as it is, sorted."""
    every = range(layout.blocks)
    parts = {
        (origin, length)
        for found in layout.sets
        if found.how != "sliced"
        for _, origin, length, _ in _wanted(found, layout, every)
    }
    return sorted(parts)


def rows_of(layout: Layout, blocks: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The rows of some blocks, which rise, as few ranges."""
    ranges: list[tuple[int, int]] = []
    for block in blocks:
        first = block * layout.step
        end = min(layout.rows, first + layout.step)
        if ranges and ranges[-1][1] == first:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((first, end))
    return tuple(ranges)


def build(layout: Layout, blocks: Sequence[int]) -> Shard:
    """The file of the node that gets these blocks, which rise."""
    import h5py
    import numpy

    rows = rows_of(layout, blocks)
    count = sum(end - first for first, end in rows)
    image = SparseImage(layout.structure)
    with h5py.File(io.BytesIO(layout.values), "r") as values:
        made = h5py.File(image, "r+")
        parts: list[MovedRows] = []
        for number, found in enumerate(layout.sets):
            if found.how == "sliced":
                kept = values[str(number)]
                picked = numpy.concatenate([kept[first:end] for first, end in rows])
                _sized(made, found, count)[...] = picked
            else:
                parts += _place(made, image, found, layout, blocks, count)
        made.attrs[ROWS_ATTRIBUTE] = numpy.array(rows, dtype="int64")
        made.close()
    parts.sort(key=lambda part: part.place)
    return Shard(
        rows=rows,
        size_bytes=image.size_bytes,
        parts=tuple(parts),
        structure=tuple(_between(image.segments(), parts)),
    )


def _between(
    segments: Iterator[tuple[int, bytes]], parts: Sequence[MovedRows]
) -> Iterator[tuple[int, bytes]]:
    """What of some segments lies outside all parts, which are sorted by place."""
    starts = [part.place for part in parts]
    for start, content in segments:
        at, end = start, start + len(content)
        first = max(0, bisect.bisect_right(starts, start) - 1)
        for part in parts[first : bisect.bisect_left(starts, end)]:
            if at < part.place:
                yield at, content[at - start : part.place - start]
            at = max(at, part.place + part.length)
        if at < end:
            yield at, content[at - start :]


def _sized(made: h5py.File, found: Hdf5Rows, rows: int) -> h5py.Dataset:
    """The data set with its final number of rows."""
    data = made[found.names[0]]
    if found.how == "whole":
        rows = data.maxshape[0] if found.chunked else data.shape[0]
    if found.chunked:
        data.resize(rows, axis=0)
        return data
    aside = f"{found.names[0]}.sbtrain-tmp"
    fresh = make_empty(made, aside, data, rows=rows)
    for name in found.names:
        del made[name]
        made[name] = fresh
    del made[aside]
    return fresh


def _place(
    made: h5py.File,
    image: SparseImage,
    found: Hdf5Rows,
    layout: Layout,
    blocks: Sequence[int],
    rows: int,
) -> Iterator[MovedRows]:
    """Have HDF5 choose the places of all raw parts of one data set."""
    data = _sized(made, found, rows)
    base = None if found.chunked else data.id.get_offset()
    at = base
    for number, (mask, origin, length, element) in enumerate(_wanted(found, layout, blocks)):
        if at is not None:
            block = number if found.how == "cut" else len(blocks)
            yield MovedRows(origin=origin, place=at, length=length, block=block)
            at += length
            continue
        data.id.write_direct_chunk(element, image.marker(length), mask)
        if image.placed < 0:
            raise StagingError(f"HDF5 did not say where it keeps {found.names[0]}")
        block = element[0] // layout.step if found.how == "cut" else len(blocks)
        yield MovedRows(origin=origin, place=image.placed, length=length, block=block)


def _wanted(
    found: Hdf5Rows, layout: Layout, blocks: Sequence[int]
) -> Iterator[tuple[int, int, int, tuple[int, ...]]]:
    """Filter mask, place in the source, bytes and first element in the shard, of all that
    some blocks need of a data set."""
    if found.how == "whole":
        yield from ((mask, origin, size, el) for mask, origin, size, *rest in found.chunks
                    for el in (tuple(rest),))  # fmt: skip
    elif not found.chunked:
        for _, origin, _, *_ in found.chunks:
            for block in blocks:
                first = block * layout.step
                end = min(layout.rows, first + layout.step)
                size = (end - first) * found.row_bytes
                yield 0, origin + first * found.row_bytes, size, ()
    else:
        order = {block: number for number, block in enumerate(blocks)}
        for mask, origin, size, row, *rest in found.chunks:
            block, within = divmod(row, layout.step)
            if block in order:
                yield mask, origin, size, (order[block] * layout.step + within, *rest)


def shard_rows(path: Path | str) -> tuple[tuple[int, int], ...]:
    """Which rows of the source a shard holds, as (first row, end), in its own order.

    Raises:
        StagingError: the file is no shard.
    """
    import h5py

    with h5py.File(path, "r", locking=False) as shard:
        found = shard.attrs.get(ROWS_ATTRIBUTE)
        if found is None:
            raise StagingError(f"{path} is no shard: it does not say which rows it holds")
        return tuple((int(first), int(end)) for first, end in found)
