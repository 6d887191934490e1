"""Cutting a source into pieces, the unit that is hashed, remembered and waited for.

A piece is a part of one file of at most PIECE_BYTES; a small file is one piece. Pieces are
numbered in manifest order. A set of pieces is a Python integer with one bit a piece.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping

from sbtrain_staging.sources.hashing import digest, digest_of_parts
from sbtrain_staging.sources.manifest import Kind, Manifest

PIECE_BYTES = 16 << 20
PieceSet = int


class PieceTable:
    """The pieces of one manifest: their file, offset and length, by number."""

    __slots__ = ("files", "first_of_file", "lengths", "offsets")

    def __init__(self, manifest: Manifest, *, piece_bytes: int = PIECE_BYTES) -> None:
        self.files = array("I")
        self.offsets = array("Q")
        self.lengths = array("I")
        self.first_of_file: dict[int, int] = {}
        for index in manifest.of_kind(Kind.FILE):
            self.first_of_file[index] = len(self.files)
            moved = index in manifest.origins
            for start, length in manifest.data_extents(index):
                self._cut(index, start, start + length, piece_bytes, start if moved else 0)

    def _cut(self, index: int, start: int, end: int, piece_bytes: int, base: int) -> None:
        """Cut at multiples of the piece's size from a base: of 0, reads stay aligned."""
        while start < end:
            stop = min(end, base + ((start - base) // piece_bytes + 1) * piece_bytes)
            self.files.append(index)
            self.offsets.append(start)
            self.lengths.append(stop - start)
            start = stop

    def __len__(self) -> int:
        return len(self.files)

    def of_file(self, index: int) -> range:
        """The numbers of the pieces of one file."""
        first = self.first_of_file[index]
        last = first
        while last < len(self.files) and self.files[last] == index:
            last += 1
        return range(first, last)

    def is_whole_file(self, piece: int, manifest: Manifest) -> bool:
        return bool(
            self.offsets[piece] == 0
            and self.lengths[piece] == manifest.sizes_bytes[self.files[piece]]
        )

    def bytes_in(self, pieces: PieceSet) -> int:
        if pieces == self.all:
            return sum(self.lengths)
        return sum(self.lengths[piece] for piece in members(pieces))

    @property
    def all(self) -> PieceSet:
        return (1 << len(self.files)) - 1

    def file_digests(self, digests: Mapping[int, bytes]) -> dict[int, bytes]:
        """The hash of every file from the hashes of all pieces."""
        empty = digest(b"")
        return {
            index: digest_of_parts(digests[piece] for piece in self.of_file(index))
            if self.of_file(index)
            else empty
            for index in self.first_of_file
        }


def members(pieces: PieceSet) -> Iterator[int]:
    """The numbers in a set, rising."""
    for byte_index, byte in enumerate(to_bytes(pieces)):
        left = byte
        while left:
            low = left & -left
            yield 8 * byte_index + low.bit_length() - 1
            left ^= low


def to_bytes(pieces: PieceSet) -> bytes:
    return pieces.to_bytes((pieces.bit_length() + 7) // 8, "little")


def from_bytes(packed: bytes) -> PieceSet:
    return int.from_bytes(packed, "little")


def set_of(numbers: Iterable[int], *, size: int) -> PieceSet:
    bits = bytearray((size + 7) // 8)
    for number in numbers:
        bits[number >> 3] |= 1 << (number & 7)
    return from_bytes(bytes(bits))
