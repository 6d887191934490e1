"""Moving shards: what a node lacks of its part comes from the node that has it.

Dealing a source out anew, for the next epoch or to another number of nodes, leaves each node
with a part that others hold. Pieces travel from holder to needer over MPI; only what no
node holds is read from the source. Kept pieces are copied on the node itself.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from sbtrain_staging.cache.checking import unharmed
from sbtrain_staging.cache.node_cache import NodeCache
from sbtrain_staging.engine.disk import CopyReader, SourceReader, TreeReader, TreeWriter
from sbtrain_staging.engine.move import Moved
from sbtrain_staging.engine.partial import PartialCopy
from sbtrain_staging.engine.pipeline import LaneEnds
from sbtrain_staging.engine.schedule import Lane, Segment, plan_lanes
from sbtrain_staging.engine.shards import Share, whole_pieces
from sbtrain_staging.errors import StagingError
from sbtrain_staging.ranks.world import World
from sbtrain_staging.sources.manifest import Manifest
from sbtrain_staging.sources.order import arrival_order
from sbtrain_staging.sources.pieces import PieceTable, from_bytes, members, set_of, to_bytes
from sbtrain_staging.sources.records import read_header, read_record


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What a node has of a source in a finished copy.

    Attributes:
        folder: of the copy.
        pieces: digest, and offset in the copy's file, by the number of the piece in the whole.
    """

    folder: Path
    pieces: Mapping[int, tuple[bytes, int]]


def holding(
    cache: NodeCache, share: Share, whole_table: PieceTable, *, place: Path | None
) -> Holding | None:
    """What this node can give: of its finished part, else what of the newest other copy is
    unharmed."""
    if place is not None:
        _, known, digests = read_record(cache.record_of(share.manifest))
        folder = place.parent
    else:
        with cache.locked():
            older = cache.predecessor(share.manifest)
        if older is None:
            return None
        folder, known, digests = older
    table = PieceTable(known)
    same = whole_pieces(share.whole, whole_table, known, table)
    there = {piece: digests[piece] for piece in same if piece < len(digests)}
    if place is None:
        there = dict(unharmed(folder, known, table, there, structure=None).pieces)
    pieces = {same[piece]: (found, table.offsets[piece]) for piece, found in there.items()}
    return Holding(folder=folder, pieces=pieces)


class ShardMove(Moved):
    """The readers and writers of one rank that gets its part; see move.Move.

    The engine numbers pieces as the whole source does; the copy numbers those of its part.
    """

    def __init__(
        self,
        share: Share,
        part_table: PieceTable,
        partial: PartialCopy,
        cache: NodeCache,
        *,
        place: Path | None,
    ) -> None:
        super().__init__()
        self.manifest = share.manifest
        self.table = table = PieceTable(share.whole)
        self.held = holding(cache, share, table, place=place)
        self.folder = partial.tree
        self.arrival = share.arrival
        self._whole = share.whole
        self._partial = partial
        same = whole_pieces(share.whole, table, share.manifest, part_table)
        self.part_of = {number: piece for piece, number in same.items()}

    def ends(self, lane: Lane, rank: int) -> LaneEnds:
        reader: TreeReader | None = None
        writer: _PartWriter | None = None
        if lane.chain[0] == rank:
            reader = SourceReader(self._whole, self.table) if lane.from_source else self._own()
            self._readers.append(reader)
        if lane.chain[0] != rank or lane.from_source or len(lane.chain) == 1:
            inner = self._partial.writer()
            self._writers.append(inner)
            writer = _PartWriter(inner, self.part_of)
        return LaneEnds(reader=reader, writer=writer)

    def _own(self) -> CopyReader:
        """Reads the finished copy on this node, by the numbers of the whole."""
        if self.held is None:
            raise ValueError("a rank without a copy is asked to give")
        table = self.table
        if 0 in self._whole.origins:
            table = PieceTable(self._whole)
            table.offsets = array("Q", table.offsets)
            for number, (_, offset) in self.held.pieces.items():
                table.offsets[number] = offset
        known = {number: found for number, (found, _) in self.held.pieces.items()}
        return CopyReader(self._whole, table, folder=self.held.folder, known=known)


class _PartWriter:
    """Writes chunks into a part, whose pieces have other numbers."""

    def __init__(self, inner: TreeWriter, part_of: Mapping[int, int]) -> None:
        self._inner = inner
        self._part_of = part_of

    def write_chunk(
        self, chunk: list[Segment], data: memoryview, digests: Sequence[bytes], giver: str
    ) -> None:
        here = [
            Segment(self._part_of[part.piece], part.start, part.length, part.ends)
            for part in chunk
        ]
        self._inner.write_chunk(here, data, digests, giver)

    def close(self) -> None:
        self._inner.close()


def shard_lanes(
    world: World,
    move: ShardMove,
    part_table: PieceTable,
    *,
    have: int,
    readers: int,
    seed: int | None,
) -> list[Lane]:
    """Where every piece of this node's part comes from; all ranks must call it.

    Args:
        have: pieces of the part that are there already.
        seed: of the order in which this node's own reading from the source arrives.
    """
    table, size = move.table, len(move.table)
    lacking = (number for number, piece in move.part_of.items() if not have >> piece & 1)
    wants = set_of(lacking, size=size)
    gives = set_of(move.held.pieces if move.held is not None else (), size=size)
    wanted = [from_bytes(found) for found in world.exchange(to_bytes(wants))]
    given = [from_bytes(found) for found in world.exchange(to_bytes(gives))]
    nowhere, once, twice = table.all, 0, 0
    for wish, gift in zip(wanted, given, strict=True):
        nowhere &= ~gift
        twice |= once & wish
        once |= wish
    alone = nowhere & once & ~twice
    shared = [wish & ~alone for wish in wanted]
    lanes = plan_lanes(table, wanted=shared, held=given, readers=readers)
    order: Sequence[int] = range(len(part_table))
    if move.arrival:
        order = _by_extent(move.manifest, part_table, move.arrival)
    elif seed is not None:
        order = arrival_order(move.manifest, part_table, seed)
    whole_of = {piece: number for number, piece in move.part_of.items()}
    for pieces, from_source in ((wants & gives, False), (wants & alone, True)):
        chosen = set(members(pieces))
        numbers = [whole_of[p] for p in order if p in whole_of and whole_of[p] in chosen]
        if numbers:
            lanes.append(
                Lane(
                    number=len(lanes),
                    chain=(world.rank,),
                    from_source=from_source,
                    pieces=numbers,
                )
            )
    return lanes


def _by_extent(manifest: Manifest, table: PieceTable, arrival: Sequence[int]) -> list[int]:
    """All pieces of a file, in the order of its extents that is given."""
    numbers = {offset: piece for piece, offset in enumerate(table.offsets)}
    extents = manifest.data_extents(0)
    order: list[int] = []
    for extent in arrival:
        start, length = extents[extent]
        piece = numbers[start]
        while piece < len(table) and table.offsets[piece] < start + length:
            order.append(piece)
            piece += 1
    return order


def release_older(cache: NodeCache, move: ShardMove, *, key: str) -> int:
    """Give up a job's older parts of a source, and remove those that no job counts on: all
    but the one that was published and the one before, which may still be read.

    Returns:
        Copies that were removed.
    """
    removed = 0
    with cache.locked():
        stay = {read_header(cache.record_of(move.manifest)).content}
        stay |= {move.held.folder.name} if move.held is not None else set()
        for copy in list(cache.copies()):
            content = copy.header.content
            if content in stay or copy.header.root != move.manifest.root:
                continue
            try:
                if not read_record(copy.record)[1].part:
                    continue
            except StagingError:
                continue  # damaged: the next staging removes it
            (cache.pins / content / quote(key, safe="")).unlink(missing_ok=True)
            if not cache.is_pinned(content):
                cache.evict(content)
                removed += 1
    return removed
