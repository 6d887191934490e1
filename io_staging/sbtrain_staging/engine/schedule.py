"""Who reads which piece, and along which chain of nodes it travels.

Every piece that some node lacks is read once: by a node that already has it, from its own
scratch, or else by one node from the source. From there it is forwarded node to node to
all that lack it. Every rank computes the same schedule from the same facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sbtrain_staging.sources.pieces import PieceSet, PieceTable, members

CHUNK_BYTES_MOST = 4 << 20
CHUNK_BYTES_LEAST = 256 << 10
# A chain of n nodes is full after n-2 chunks; this keeps that to a small part of the whole.
FILL_SHARE = 0.02
PIECES_PER_CHUNK_MOST = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """Pieces that travel one after another along one chain.

    Attributes:
        number: place in the order in which lanes are started; also the message tag.
        chain: ranks; the first one reads, each hands on to the next.
        from_source: the first rank reads the shared source and keeps the data as well;
            otherwise it reads its own scratch.
        pieces: in the order of travel.
    """

    number: int
    chain: tuple[int, ...]
    from_source: bool
    pieces: Sequence[int]


@dataclass(frozen=True, slots=True)
class Segment:
    """The part of a piece that lies in one chunk."""

    piece: int
    start: int
    length: int
    ends: bool


def chunk_size(data_bytes: int, nodes: int) -> int:
    """Bytes of one chunk: a power of two, small where many nodes share little data."""
    most = int(FILL_SHARE * data_bytes / max(1, nodes - 1))
    size = CHUNK_BYTES_MOST
    while size > CHUNK_BYTES_LEAST and size > most:
        size //= 2
    return size


def plan_lanes(
    table: PieceTable,
    *,
    wanted: Sequence[PieceSet],
    held: Sequence[PieceSet],
    readers: int,
    order: Sequence[int] | None = None,
) -> list[Lane]:
    """The lanes that bring every rank what it wants and does not hold.

    Args:
        wanted, held: of each rank.
        readers: lanes that a group of equally lacking ranks is split into.
        order: all pieces in the order in which they should arrive; None is by number.
    """
    lanes: list[Lane] = []
    for needers, holders, pieces in _groups(table.all, wanted, held):
        chosen = list(members(pieces))
        if order is not None:
            rank_of = {piece: place for place, piece in enumerate(order)}
            chosen.sort(key=rank_of.__getitem__)
        givers = holders or needers
        parts = _split(chosen, table, min(readers, max(1, len(givers))))
        for turn, part in enumerate(parts):
            first = turn * len(givers) // len(parts)
            if holders:
                at = turn * len(needers) // len(parts)
                chain = (holders[first], *needers[at:], *needers[:at])
            else:
                chain = (*needers[first:], *needers[:first])
            lanes.append(
                Lane(number=len(lanes), chain=chain, from_source=not holders, pieces=part)
            )
    return lanes


def _groups(
    every: PieceSet, wanted: Sequence[PieceSet], held: Sequence[PieceSet]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], PieceSet]]:
    """Split the pieces into groups of the same lacking and the same holding ranks."""
    groups: list[tuple[tuple[int, ...], tuple[int, ...], PieceSet]] = [((), (), every)]
    for rank, (wants, holds) in enumerate(zip(wanted, held, strict=True)):
        parts = []
        for needers, holders, pieces in groups:
            parts += [
                (needers, (*holders, rank), pieces & holds),
                ((*needers, rank), holders, pieces & wants & ~holds),
                (needers, holders, pieces & ~wants & ~holds),
            ]
        groups = [part for part in parts if part[2]]
    return (group for group in groups if group[0])


def _split(chosen: list[int], table: PieceTable, parts: int) -> list[list[int]]:
    """Cut a list of pieces into runs of about the same number of bytes."""
    total = sum(table.lengths[piece] for piece in chosen)
    runs: list[list[int]] = [[]]
    passed = 0
    for piece in chosen:
        if runs[-1] and passed >= total * len(runs) / parts:
            runs.append([])
        runs[-1].append(piece)
        passed += table.lengths[piece]
    return runs


def chunks(lane: Lane, table: PieceTable, chunk_bytes: int) -> Iterator[list[Segment]]:
    """What each chunk of a lane holds; a large piece starts a chunk, so reads are aligned."""
    chunk: list[Segment] = []
    room = chunk_bytes
    for piece in lane.pieces:
        start, left = 0, table.lengths[piece]
        if chunk and left >= chunk_bytes:
            yield chunk
            chunk, room = [], chunk_bytes
        while left:
            length = min(left, room)
            left -= length
            chunk.append(Segment(piece, start, length, not left))
            start += length
            room -= length
            if not room or len(chunk) == PIECES_PER_CHUNK_MOST:
                yield chunk
                chunk, room = [], chunk_bytes
    if chunk:
        yield chunk
