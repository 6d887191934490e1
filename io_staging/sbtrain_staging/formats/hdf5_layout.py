"""What an HDF5 file holds, and how its rows can be cut: looked at by one rank for all.

Rows are cut where chunks end, so that chunks move as they are, never decompressed. Data
sets of the same length are cut alike; others go to every node whole.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sbtrain_staging.errors import SourceError, StagingError

if TYPE_CHECKING:
    import h5py

# Sent to every rank with the file's structure: small data sets, and the rows of those whose
# chunks end elsewhere.
INLINE_BYTES_MOST = 64 << 20
_SMALL_BYTES = 64 << 10
_CONTIGUOUS_STEP_BYTES = 1 << 20
_BLOCKS_A_NODE_MOST = 2000
_REPLICATE = "stage it with --mode replicate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hdf5Rows:
    """One data set, under all its names.

    Attributes:
        how: "cut" (rows are dealt, raw), "sliced" (rows are dealt, by value), "whole" (raw,
            to all nodes).
        chunks: of each stored chunk its filter mask, place, bytes and first element.
    """

    names: tuple[str, ...]
    how: str
    chunked: bool
    row_bytes: int
    chunks: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a file can be cut.

    Attributes:
        rows: length of the data sets that are cut.
        step: rows of a block, the unit that is dealt.
        structure: an HDF5 file with all groups, attributes and small data sets.
        values: an HDF5 file with the data sets that are sliced, by number.
    """

    rows: int
    step: int
    sets: tuple[Hdf5Rows, ...]
    structure: bytes
    values: bytes

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.step)

    def to_bytes(self) -> bytes:
        head = {
            "rows": self.rows,
            "step": self.step,
            "sets": [asdict(found) for found in self.sets],
            "structure": len(self.structure),
        }
        return json.dumps(head).encode() + b"\n" + self.structure + self.values

    @classmethod
    def from_bytes(cls, packed: bytes) -> Layout:
        line, _, rest = packed.partition(b"\n")
        head = json.loads(line)
        sets = tuple(
            Hdf5Rows(
                names=tuple(found["names"]),
                how=found["how"],
                chunked=found["chunked"],
                row_bytes=found["row_bytes"],
                chunks=tuple(tuple(chunk) for chunk in found["chunks"]),
            )
            for found in head["sets"]
        )
        at = head["structure"]
        return cls(
            rows=head["rows"],
            step=head["step"],
            sets=sets,
            structure=rest[:at],
            values=rest[at:],
        )


def layout_of(path: Path, nodes: int) -> Layout:
    """Look at a file, without reading its data.

    Raises:
        SourceError: it is no HDF5 file, or holds what cannot be cut.
    """
    import h5py

    try:
        with h5py.File(path, "r", locking=False) as source:
            return _Survey(path, source, nodes).layout()
    except OSError as error:
        raise SourceError(f"cannot read {path} as HDF5: {error}") from None


class _Survey:
    """One look at a file."""

    def __init__(self, path: Path, source: h5py.File, nodes: int) -> None:
        self._path = path
        self._source = source
        self._nodes = nodes
        self._names: dict[int, list[str]] = {}
        self._found: list[tuple[str, h5py.Dataset]] = []
        self._inline_bytes = 0

    def layout(self) -> Layout:
        if self._source.userblock_size:
            raise self._refusal("has a user block", _REPLICATE)
        structure, values = io.BytesIO(), io.BytesIO()
        import h5py

        with h5py.File(structure, "w") as made, h5py.File(values, "w") as kept:
            self._copy_group(self._source, made, "")
            leader = self._leader()
            rows = leader.shape[0]
            step = self._step(rows, leader)
            sets = []
            for name, found in self._found:
                how = self._how(found, rows, step)
                if how == "copied":
                    self._inline(found)
                    self._source.copy(found, made, name=name)
                else:
                    make_empty(made, name, found)
                    sets.append(self._described(name, found, how))
                if how == "sliced":
                    self._inline(found)
                    self._source.copy(found, kept, name=str(len(sets) - 1))
            for names in self._names.values():
                for other in names[1:]:
                    made[other] = made[names[0]]
        return Layout(
            rows=rows,
            step=step,
            sets=tuple(sets),
            structure=structure.getvalue(),
            values=values.getvalue(),
        )

    def _refusal(self, why: str, hint: str) -> SourceError:
        return SourceError(f"{self._path} cannot be cut into shards: it {why}", hint=hint)

    def _copy_group(self, source: h5py.Group, made: h5py.Group, prefix: str) -> None:
        import h5py

        copy_attributes(source.id, made.id)
        for name in source:
            link = source.get(name, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                raise self._refusal(f"links to {link.filename} ({prefix}/{name})", _REPLICATE)
            if isinstance(link, h5py.SoftLink):
                made[name] = h5py.SoftLink(link.path)
                continue
            found = source[name]
            address = h5py.h5o.get_info(found.id).addr
            names = self._names.setdefault(address, [])
            names.append(f"{prefix}/{name}")
            if len(names) > 1:
                continue
            if isinstance(found, h5py.Group):
                below = h5py.h5g.create(
                    made.id, name.encode(), gcpl=found.id.get_create_plist()
                )
                self._copy_group(found, h5py.Group(below), f"{prefix}/{name}")
            elif isinstance(found, h5py.Dataset):
                self._check(found, names[0])
                self._found.append((names[0], found))
            else:
                source.copy(found, made, name=name)

    def _check(self, found: h5py.Dataset, name: str) -> None:
        if found.is_virtual:
            raise self._refusal(f"has a virtual data set ({name})", _REPLICATE)
        if found.external:
            raise self._refusal(f"keeps {name} in other files", _REPLICATE)

    def _leader(self) -> h5py.Dataset:
        """The largest data set that has rows of a fixed size."""
        fit = [found for _, found in self._found if found.shape and _is_raw(found)]
        fit = [found for found in fit if found.id.get_storage_size()]
        if not fit:
            raise self._refusal("holds no data set with rows of a fixed size", _REPLICATE)
        return max(fit, key=_value_bytes)

    def _step(self, rows: int, leader: h5py.Dataset) -> int:
        """Rows of a block: a multiple of the chunks of all large data sets of that length."""
        large = [
            found
            for _, found in self._found
            if found.shape and found.shape[0] == rows and found.chunks and _is_raw(found)
            and _value_bytes(found) > INLINE_BYTES_MOST // 4
        ]  # fmt: skip
        steps = [found.chunks[0] for found in (*large, leader) if found.chunks]
        step = math.lcm(*steps) if steps else 0
        if not step:
            step = max(1, _CONTIGUOUS_STEP_BYTES // _row_bytes(leader))
            step = min(step, max(1, rows // self._nodes))
        if rows <= step * (self._nodes - 1):
            sizes = " and ".join(str(size) for size in sorted(set(steps)))
            raise self._refusal(
                f"has {-(-rows // step)} blocks of rows, fewer than {self._nodes} nodes"
                + (f" (chunks of {sizes} rows)" if steps else ""),
                f"write it with smaller chunks (h5repack -l), or {_REPLICATE}",
            )
        return step * max(1, -(-rows // (step * self._nodes * _BLOCKS_A_NODE_MOST)))

    def _how(self, found: h5py.Dataset, rows: int, step: int) -> str:
        if found.shape and found.shape[0] == rows:
            aligned = not found.chunks or step % found.chunks[0] == 0
            return "cut" if aligned and _is_raw(found) else "sliced"
        large = _is_raw(found) and found.id.get_storage_size() > _SMALL_BYTES
        return "whole" if large else "copied"

    def _inline(self, found: h5py.Dataset) -> None:
        """Account for a data set that travels by value."""
        self._inline_bytes += _value_bytes(found)
        if self._inline_bytes > INLINE_BYTES_MOST:
            raise self._refusal(
                f"has too much that cannot be cut at chunk borders ({found.name})",
                "give data sets of one length the same chunk rows and values of a fixed "
                f"size, or {_REPLICATE}",
            )

    def _described(self, name: str, found: h5py.Dataset, how: str) -> Hdf5Rows:
        chunks: tuple[tuple[int, ...], ...] = ()
        if how != "sliced":
            chunks = tuple(sorted(_stored(found), key=lambda chunk: chunk[3:]))
        for names in self._names.values():
            if names[0] == name:
                return Hdf5Rows(
                    names=tuple(names),
                    how=how,
                    chunked=bool(found.chunks),
                    row_bytes=_row_bytes(found),
                    chunks=chunks,
                )
        raise StagingError(f"{name} is not among the names of {self._path}")


def _stored(found: h5py.Dataset) -> Iterator[tuple[int, ...]]:
    """Filter mask, place, bytes and first element of each stored chunk; a contiguous data
    set is one."""
    if not found.chunks:
        place = found.id.get_offset()
        if place is not None:
            yield (0, place, found.id.get_storage_size(), *(0 for _ in found.shape))
        return
    seen: list[Any] = []
    found.id.chunk_iter(seen.append)
    for chunk in seen:
        yield (chunk.filter_mask, chunk.byte_offset, chunk.size, *chunk.chunk_offset)


def _row_bytes(found: h5py.Dataset) -> int:
    row = math.prod(int(length) for length in found.shape[1:])
    return max(1, row * int(found.id.get_type().get_size()))


def _value_bytes(found: h5py.Dataset) -> int:
    size = found.id.get_type().get_size()
    if _is_ragged(found.id.get_type()):
        size += 1024  # a guess: what ragged rows hold is not in the data set's own space
    return int((found.size or 1) * size)


def _is_raw(found: h5py.Dataset) -> bool:
    """Whether its stored bytes mean the same in another file."""
    import h5py

    compact = found.id.get_create_plist().get_layout() == h5py.h5d.COMPACT
    return not compact and not _is_ragged(found.id.get_type())


def _is_ragged(kind: h5py.h5t.TypeID) -> bool:
    """Whether values point elsewhere in their file."""
    import h5py

    if kind.detect_class(h5py.h5t.VLEN) or kind.detect_class(h5py.h5t.REFERENCE):
        return True
    return bool(kind.get_class() == h5py.h5t.STRING and kind.is_variable_str())


def make_empty(
    made: h5py.File, name: str, like: h5py.Dataset, *, rows: int | None = None
) -> h5py.Dataset:
    """Create a data set with the type, layout, filters and attributes of another.

    Args:
        rows: None leaves it without rows where it can grow later.
    """
    import h5py

    properties = like.id.get_create_plist()
    properties.set_obj_track_times(False)
    shape = list(like.shape or ())
    limits = list(like.maxshape or ())
    if like.chunks:
        properties.set_alloc_time(h5py.h5d.ALLOC_TIME_INCR)
        shape[0] = rows or 0
    elif rows is not None:
        limits[0] = shape[0] = rows
    if not like.chunks and _is_raw(like):
        late = h5py.h5d.ALLOC_TIME_LATE if rows is None else h5py.h5d.ALLOC_TIME_EARLY
        properties.set_alloc_time(late)
        properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    unlimited = h5py.h5s.UNLIMITED
    space = h5py.h5s.create_simple(
        tuple(shape), tuple(unlimited if most is None else most for most in limits)
    )
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    created = h5py.h5d.create(
        made.id, name.encode(), like.id.get_type(), space, dcpl=properties, lcpl=links
    )
    copy_attributes(like.id, created)
    return h5py.Dataset(created)


def copy_attributes(source: h5py.h5g.GroupID, made: h5py.h5g.GroupID) -> None:
    """Copy attributes as they are; references, which name places in a file, are left out."""
    import h5py
    import numpy

    for number in range(h5py.h5a.get_num_attrs(source)):
        found = h5py.h5a.open(source, index=number)
        kind, space = found.get_type(), found.get_space()
        if kind.detect_class(h5py.h5t.REFERENCE):
            continue
        copy = h5py.h5a.create(made, found.name, kind, space)
        if space.get_simple_extent_type() != h5py.h5s.NULL:
            value = numpy.empty(found.shape, dtype=found.dtype)
            found.read(value)
            copy.write(value)
