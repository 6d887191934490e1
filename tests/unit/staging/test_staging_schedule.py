"""Schedules bring every piece to all that lack it, from one reader each."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbtrain_staging.engine.schedule import Lane, chunk_size, chunks, plan_lanes
from sbtrain_staging.sources.manifest import Entry, Kind, Manifest
from sbtrain_staging.sources.pieces import PieceTable, from_bytes, members, set_of, to_bytes

PIECE = 1000


def table_of(*sizes_bytes: int) -> PieceTable:
    files = [
        Entry(path=b"%04d" % number, kind=Kind.FILE, size_bytes=size)
        for number, size in enumerate(sizes_bytes)
    ]
    root = Entry(path=b"", kind=Kind.FOLDER)
    manifest = Manifest(root="/data", name="data", entries=[root, *files])
    return PieceTable(manifest, piece_bytes=PIECE)


def test_pieces_cover_files_and_are_cut_at_multiples() -> None:
    table = table_of(0, 1, PIECE, PIECE + 1, 3 * PIECE)
    assert list(table.lengths) == [1, PIECE, PIECE, 1, PIECE, PIECE, PIECE]
    assert list(table.offsets) == [0, 0, 0, PIECE, 0, PIECE, 2 * PIECE]
    assert [list(table.of_file(index)) for index in range(1, 6)] == [
        [], [0], [1], [2, 3], [4, 5, 6],
    ]  # fmt: skip


def test_holes_are_not_in_pieces() -> None:
    entry = Entry(path=b"", kind=Kind.FILE, size_bytes=9000, extents=((500, 700), (8000, 1000)))
    table = PieceTable(Manifest(root="/f", name="f", entries=[entry]), piece_bytes=PIECE)
    cut = list(zip(table.offsets, table.lengths, strict=True))
    assert cut == [(500, 500), (1000, 200), (8000, 1000)]


@given(st.sets(st.integers(0, 500)))
def test_sets_of_pieces_survive_their_bytes(numbers: set[int]) -> None:
    found = set_of(numbers, size=501)
    assert list(members(from_bytes(to_bytes(found)))) == sorted(numbers)


sizes = st.lists(st.integers(0, 4 * PIECE), min_size=1, max_size=12)


@given(sizes=sizes, ranks=st.integers(1, 6), readers=st.integers(1, 5), data=st.data())
def test_every_lacking_rank_gets_every_piece_once(
    sizes: list[int], ranks: int, readers: int, data: st.DataObject
) -> None:
    table = table_of(*sizes)
    held = [data.draw(st.integers(0, table.all)) for _ in range(ranks)]
    wanted = [data.draw(st.integers(0, table.all)) for _ in range(ranks)]
    lanes = plan_lanes(table, wanted=wanted, held=held, readers=readers)
    got: list[list[int]] = [[] for _ in range(ranks)]
    read: list[int] = []
    for lane in lanes:
        assert len(set(lane.chain)) == len(lane.chain)
        read += lane.pieces
        takers = lane.chain if lane.from_source else lane.chain[1:]
        for rank in takers:
            got[rank] += lane.pieces
        if lane.from_source:
            assert not any(held[rank] >> p & 1 for rank in range(ranks) for p in lane.pieces)
        else:
            assert all(held[lane.chain[0]] >> piece & 1 for piece in lane.pieces)
    assert len(read) == len(set(read))
    for rank in range(ranks):
        assert sorted(got[rank]) == list(members(wanted[rank] & ~held[rank]))


def test_readers_share_a_fresh_source() -> None:
    table = table_of(*[PIECE] * 12)
    everything = [table.all] * 4
    lanes = plan_lanes(table, wanted=everything, held=[0] * 4, readers=4)
    assert [lane.chain[0] for lane in lanes] == [0, 1, 2, 3]
    assert [len(lane.pieces) for lane in lanes] == [3, 3, 3, 3]


@given(sizes=sizes, chunk_bytes=st.sampled_from([1, 7, PIECE, 2500]))
def test_chunks_hold_a_lane_in_order(sizes: list[int], chunk_bytes: int) -> None:
    table = table_of(*sizes)
    lane = Lane(number=0, chain=(0,), from_source=True, pieces=range(len(table)))
    found = list(chunks(lane, table, chunk_bytes))
    assert all(0 < sum(s.length for s in chunk) <= chunk_bytes for chunk in found)
    at = dict.fromkeys(range(len(table)), 0)
    for segment in (segment for chunk in found for segment in chunk):
        assert segment.start == at[segment.piece]
        at[segment.piece] += segment.length
        assert segment.ends == (at[segment.piece] == table.lengths[segment.piece])
    assert list(at.values()) == list(table.lengths)


@pytest.mark.parametrize(
    ("data_bytes", "nodes", "expected"),
    [(1 << 40, 2, 4 << 20), (1 << 20, 2, 256 << 10), (256 << 20, 16, 256 << 10)],
)
def test_chunks_are_small_where_a_long_chain_carries_little(
    data_bytes: int, nodes: int, expected: int
) -> None:
    assert chunk_size(data_bytes, nodes) == expected
