"""Which pieces of an unfinished copy are there: one fixed-size record a piece, appended
after the piece's data. What a record says is checked against the data before it is used."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from sbtrain_staging.sources.hashing import DIGEST_BYTES

_RECORD = struct.Struct(f"<I{DIGEST_BYTES}s")


class Journal:
    """Appends to the journal of a copy."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        torn = os.fstat(self._descriptor).st_size % _RECORD.size
        if torn:
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - torn)

    def add(self, pieces: Iterable[tuple[int, bytes]]) -> None:
        lines = journal_bytes(pieces)
        if lines:
            os.write(self._descriptor, lines)

    def close(self) -> None:
        os.close(self._descriptor)


def journal_bytes(pieces: Iterable[tuple[int, bytes]]) -> bytes:
    return b"".join(_RECORD.pack(number, found) for number, found in pieces)


def read_journal(path: Path, *, start: int = 0) -> list[tuple[int, bytes]]:
    """Piece numbers and digests from record `start` on; empty where there is no journal."""
    try:
        with path.open("rb") as stream:
            stream.seek(start * _RECORD.size)
            content = stream.read()
    except FileNotFoundError:
        return []
    whole = len(content) - len(content) % _RECORD.size
    return [(piece, found) for piece, found in _RECORD.iter_unpack(content[:whole])]
