"""Dealing a source out among the nodes, for data-parallel epochs: a tree by its files, an
HDF5 file by blocks of rows, TFRecord and tar files by records and members."""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sbtrain_staging.errors import SourceError, StagingError
from sbtrain_staging.formats.hdf5_references import HDF5_SIGNATURE
from sbtrain_staging.formats.record_files import TAR_END_BYTES, record_runs
from sbtrain_staging.ranks.world import World, together
from sbtrain_staging.sources.hashing import digest
from sbtrain_staging.sources.manifest import Entry, Kind, Manifest
from sbtrain_staging.sources.order import epoch_order
from sbtrain_staging.sources.pieces import PieceTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Deal:
    """Who gets what: known to all nodes from these numbers.

    Attributes:
        seed: of the order in which things are dealt; None deals in order of names or rows.
        epoch: 0 is the first; every other epoch deals anew.
    """

    rank: int
    size: int
    seed: int | None
    epoch: int = 0

    def order(self, count: int) -> Sequence[int]:
        """In which order `count` things are dealt."""
        if self.seed is None:
            return range(count)
        if self.epoch == 0:
            return epoch_order(count, self.seed)
        said = digest(b"%d %d" % (self.seed, self.epoch))
        return epoch_order(count, int.from_bytes(said[:8], "little"))

    def mine(self, count: int) -> list[int]:
        """This node's part of `count` things, rising; parts differ by one thing at most."""
        if self.seed is None:
            first, end = (count * k // self.size for k in (self.rank, self.rank + 1))
            return list(range(first, end))
        order = list(self.order(count))
        if larger := count % self.size:
            # The last block of rows may be short: it goes to one that gets one block more.
            last = order.index(count - 1)
            order[last], order[last % larger] = order[last % larger], order[last]
        return sorted(order[self.rank :: self.size])

    @property
    def label(self) -> str:
        return f"rank={self.rank} size={self.size} seed={self.seed} epoch={self.epoch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One node's part of a source.

    Attributes:
        manifest: of the part.
        whole: of the source, cut into pieces in the same way.
        structure: offset and content of what is no data of the source, in the one file of
            the part.
        arrival: the extents of that file in the order in which they should come.
    """

    manifest: Manifest
    whole: Manifest
    arrival: Sequence[int] = field(default=(), repr=False)
    structure: Sequence[tuple[int, bytes]] = field(default=(), repr=False)

    def write_structure(self, tree: Path) -> None:
        """Give the unfinished file of the part its structure."""
        if not self.structure:
            return
        path = os.fsencode(tree) + b"/" + self.manifest.published_path(0)
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_nlink == 1:  # else an older copy has it already
                for offset, content in self.structure:
                    os.pwrite(descriptor, content, offset)
        finally:
            os.close(descriptor)


def share_of(manifest: Manifest, world: World, *, seed: int | None, epoch: int) -> Share:
    """The part of a source that this node keeps; all ranks must call it.

    Raises:
        SourceError: the source cannot be cut; the same error on every rank.
        StagingError: an epoch is asked for without a seed.
    """
    deal = Deal(rank=world.rank, size=world.size, seed=seed, epoch=epoch)
    if epoch and seed is None:
        raise StagingError(
            f"epoch {epoch} would be dealt like the first: there is no seed",
            hint="give --order-seed with --epoch, the same one for all epochs",
        )
    kind = _kind(manifest)
    if kind == "tree":
        found: list[Manifest] = []

        def part() -> bytes:
            found.append(_dealt_files(manifest, deal))
            return b""

        together(world, part)
        return Share(manifest=found[0], whole=manifest)
    if kind == "hdf5":
        return _hdf5_share(manifest, world, deal)
    return _record_share(manifest, world, deal, kind)


def _dealt_files(manifest: Manifest, deal: Deal) -> Manifest:
    files = list(manifest.of_kind(Kind.FILE))
    if manifest.kinds[0] != Kind.FOLDER or len(files) < deal.size:
        raise SourceError(
            f"{manifest.root} holds {len(files)} files, too few to deal out to "
            f"{deal.size} nodes",
            hint="stage it with --mode replicate, or split it into more files",
        )
    loads = [(0, node) for node in range(deal.size)]
    kept = set(manifest.of_kind(Kind.FOLDER)) | set(manifest.of_kind(Kind.LINK))
    for place in deal.order(len(files)):
        load, node = loads[0]
        heapq.heapreplace(loads, (load + manifest.sizes_bytes[files[place]], node))
        if node == deal.rank:
            kept.add(files[place])
    return Manifest(
        root=manifest.root,
        name=manifest.name,
        entries=(manifest[index] for index in sorted(kept)),
        part=deal.label,
    )


def _kind(manifest: Manifest) -> str:
    """The same on every rank: a name is not opened here but by the one that surveys it."""
    if manifest.kinds[0] == Kind.FOLDER:
        return "tree"
    suffix = Path(manifest.root).suffix.lower()
    if suffix in (".tfrecord", ".tfrecords"):
        return "tfrecord"
    return "tar" if suffix == ".tar" else "hdf5"


def _surveyed(world: World, survey: Callable[[], bytes]) -> bytes:
    """What rank 0 finds, on every rank."""
    return together(world, lambda: survey() if world.rank == 0 else b"")[0]


def _hdf5_share(manifest: Manifest, world: World, deal: Deal) -> Share:
    def survey() -> bytes:
        with Path(manifest.root).open("rb") as stream:
            if stream.read(len(HDF5_SIGNATURE)) != HDF5_SIGNATURE:
                raise SourceError(
                    f"{manifest.root} is one file of no kind that can be cut into shards",
                    hint="HDF5 (without a user block), .tfrecord and .tar files can; stage "
                    "it with --mode replicate",
                )
        from sbtrain_staging.formats.hdf5_layout import layout_of

        return layout_of(Path(manifest.root), world.size).to_bytes()

    packed = _surveyed(world, survey)
    from sbtrain_staging.formats.hdf5_layout import Layout
    from sbtrain_staging.formats.hdf5_shards import all_parts, build

    layout = Layout.from_bytes(packed)
    mine = deal.mine(layout.blocks)
    shard = build(layout, mine)
    turns = list(range(len(mine) + 1))
    if deal.seed is not None:
        for turn, block in enumerate(epoch_order(len(mine), deal.seed)):
            turns[block] = turn
    blocks = [part.block for part in shard.parts]
    return Share(
        # Rows of all data sets come together, in the order in which row_batches draws them.
        arrival=sorted(range(len(blocks)), key=lambda extent: turns[blocks[extent]]),
        manifest=_patched(
            manifest,
            [(part.origin, part.place, part.length) for part in shard.parts],
            size_bytes=shard.size_bytes,
            # The structure and the values that travel with it belong to the version.
            part=f"{deal.label} of={digest(packed).hex()}",
        ),
        whole=_whole(manifest, all_parts(layout)),
        structure=shard.structure,
    )


def _record_share(manifest: Manifest, world: World, deal: Deal, kind: str) -> Share:
    def survey() -> bytes:
        runs = record_runs(Path(manifest.root), kind, nodes=world.size)
        return b" ".join(b"%d" % end for end in runs)

    ends = [int(end) for end in _surveyed(world, survey).split()]
    starts = [0, *ends[:-1]]
    runs = [(start, end - start) for start, end in zip(starts, ends, strict=True)]

    def parts() -> Iterator[tuple[int, int, int]]:
        place = 0
        for number in deal.mine(len(runs)):
            start, length = runs[number]
            yield start, place, length
            place += length

    mine = list(parts())
    tail = TAR_END_BYTES if kind == "tar" else 0
    return Share(
        manifest=_patched(
            manifest,
            mine,
            size_bytes=sum(length for _, _, length in mine) + tail,
            part=deal.label,
        ),
        whole=_whole(manifest, runs),
    )


def _whole(manifest: Manifest, parts: Sequence[tuple[int, int]]) -> Manifest:
    """The source's one file as its parts: (offset, length)."""
    return _patched(
        manifest,
        [(start, start, length) for start, length in parts],
        size_bytes=manifest.sizes_bytes[0],
        part="all",
    )


def _patched(
    manifest: Manifest,
    parts: Sequence[tuple[int, int, int]],
    *,
    size_bytes: int,
    part: str,
) -> Manifest:
    """A file of (offset in the source, offset here, length)."""
    source = manifest[0]
    entry = Entry(
        path=b"",
        kind=Kind.FILE,
        size_bytes=size_bytes,
        mode=source.mode,
        mtime_ns=source.mtime_ns,
        ctime_ns=source.ctime_ns,
        extents=tuple((place, length) for _, place, length in parts),
    )
    made = Manifest(root=manifest.root, name=manifest.name, entries=[entry], part=part)
    made.origins[0] = tuple(origin for origin, _, _ in parts)
    return made


def whole_pieces(
    whole: Manifest, table: PieceTable, part: Manifest, part_table: PieceTable
) -> dict[int, int]:
    """For each piece of a part the piece of the whole that is the same data.

    Files that the whole does not have, or has otherwise, are left out.
    """
    same: dict[int, int] = {}
    if 0 in whole.origins:
        if 0 not in part.origins:
            return same
        numbers = {table.offsets[piece]: piece for piece in range(len(table))}
        moves = {
            place: origin - place
            for (place, _), origin in zip(part.data_extents(0), part.origins[0], strict=True)
        }
        shift, at = 0, 0
        for piece in range(len(part_table)):
            at = part_table.offsets[piece]
            shift = moves.get(at, shift)
            number = numbers.get(at + shift)
            if number is not None and table.lengths[number] == part_table.lengths[piece]:
                same[piece] = number
        return same
    places = {whole.paths[index]: index for index in whole.of_kind(Kind.FILE)}
    for index in part.of_kind(Kind.FILE):
        other = places.get(part.paths[index])
        if other is None or index in part.origins or not _is_same(whole, other, part, index):
            continue
        same.update(zip(part_table.of_file(index), table.of_file(other), strict=True))
    return same


def _is_same(one: Manifest, index: int, other: Manifest, at: int) -> bool:
    return (
        one.sizes_bytes[index] == other.sizes_bytes[at]
        and one.mtimes_ns[index] == other.mtimes_ns[at]
        and one.ctimes_ns[index] == other.ctimes_ns[at]
        and one.data_extents(index) == other.data_extents(at)
    )
