"""Striping of Lustre, from bytes laid out as its public header says."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbtrain_staging.ranks.world import Solo
from sbtrain_staging.readers.streaming import StreamedFile
from sbtrain_staging.sources.scan import scan
from sbtrain_staging.sources.striping import (
    BLOCK_BYTES,
    Striping,
    agreed_readers,
    block_bytes,
    parse_layout,
    readers_of,
    striping_of,
)

MIB = 1 << 20
# lov_user_ost_data_v1: object id, group, generation, target.
OBJECT = struct.pack("<QQII", 77, 0, 0, 3)


def v1(stripe_bytes: int, count: int) -> bytes:
    head = struct.pack("<IIQQIHH", 0x0BD10BD0, 1, 9, 0, stripe_bytes, count, 0)
    assert len(head) == 32
    return head + OBJECT * (count if count < 2000 else 0)


def v3(stripe_bytes: int, count: int) -> bytes:
    head = struct.pack("<IIQQIHH16s", 0x0BD30BD0, 1, 9, 0, stripe_bytes, count, 0, b"flash")
    assert len(head) == 48
    return head + OBJECT * count


def composite(parts: list[tuple[bytes, int]]) -> bytes:
    """A progressive layout: each part with its flags."""
    offset = 32 + 48 * len(parts)
    size = offset + sum(len(blob) for blob, _ in parts)
    head = struct.pack("<IIIHHH14x", 0x0BD60BD0, size, 1, 0, len(parts), 0)
    assert len(head) == 32
    entries, blobs = b"", b""
    for number, (blob, flags) in enumerate(parts):
        entry = struct.pack(
            "<IIQQIIIQI", number + 1, flags, number * MIB, (number + 1) * MIB,
            offset + len(blobs), len(blob), 0, 0, 0,
        )  # fmt: skip
        assert len(entry) == 48
        entries += entry
        blobs += blob
    return head + entries + blobs


@pytest.mark.parametrize("make", [v1, v3])
def test_a_plain_layout(make) -> None:
    found = parse_layout(make(4 * MIB, 8))
    assert found == Striping(stripe_bytes=4 * MIB, stripe_count=8)


def test_the_widest_part_with_data_of_a_composite_layout() -> None:
    parts = [(v1(MIB, 1), 0x10), (v3(2 * MIB, 4), 0x10), (v1(4 * MIB, 64), 0)]
    found = parse_layout(composite(parts))
    assert found == Striping(stripe_bytes=2 * MIB, stripe_count=4)


def test_a_file_without_objects_has_no_striping() -> None:
    assert parse_layout(v1(MIB, 0)) is None
    assert parse_layout(v1(MIB, 0xFFFF)) is None
    assert parse_layout(composite([])) is None


@given(st.binary(max_size=200), st.sampled_from([b"", v1(MIB, 2), v3(MIB, 2)]))
def test_other_bytes_are_no_layout_or_a_sane_one(noise: bytes, start: bytes) -> None:
    for packed in (noise, start[: len(noise)], composite([(noise, 0x10)])):
        found = parse_layout(packed)
        assert found is None or (found.stripe_bytes > 0 and found.stripe_count > 0)


def test_readers_follow_the_stripes_up_to_the_nodes() -> None:
    wide = Striping(stripe_bytes=MIB, stripe_count=8)
    assert readers_of(wide, nodes=4, asked=1) == 4
    assert readers_of(wide, nodes=16, asked=1) == 8
    assert readers_of(wide, nodes=16, asked=12) == 12
    assert readers_of(None, nodes=16, asked=1) == 1


def test_all_ranks_follow_what_rank_0_sees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small").write_bytes(b"x")
    (tmp_path / "large").write_bytes(b"x" * 100)
    seen = []

    def look(path: bytes) -> Striping:
        seen.append(path)
        return Striping(stripe_bytes=MIB, stripe_count=3)

    monkeypatch.setattr("sbtrain_staging.sources.striping.striping_of", look)
    assert agreed_readers(scan(tmp_path), Solo(), asked=1) == 1
    assert seen == [str(tmp_path / "large").encode()]


def test_blocks_end_where_stripes_end() -> None:
    assert block_bytes(None) == BLOCK_BYTES
    assert block_bytes(Striping(stripe_bytes=8 * MIB, stripe_count=2)) == 8 * MIB
    assert block_bytes(Striping(stripe_bytes=64 << 10, stripe_count=2)) == MIB
    assert block_bytes(Striping(stripe_bytes=1 << 30, stripe_count=2)) == BLOCK_BYTES


def test_another_filesystem_has_no_striping(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    assert striping_of(tmp_path / "file") is None
    assert striping_of(tmp_path / "absent") is None


def test_a_streamed_file_is_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytes(range(256)) * 20_000
    (tmp_path / "file").write_bytes(content)
    monkeypatch.setattr(
        "sbtrain_staging.readers.streaming.striping_of",
        lambda _: Striping(stripe_bytes=MIB, stripe_count=2),
    )
    with StreamedFile(tmp_path / "file") as stream:
        assert stream.block_bytes == MIB
        assert stream.read() == content
        stream.seek(-300, 2)
        assert stream.read(500) == content[-300:]
        stream.seek(3 * MIB - 7)
        assert stream.read(20) == content[3 * MIB - 7 :][:20]
