"""An HDF5 file in memory without the raw data that is still to come.

HDF5 itself lays the file out: chunks are written as markers, which the image drops but whose
places it keeps. What remains is the file's structure, and where each chunk belongs.
"""

from __future__ import annotations

import io
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_PAGE_BYTES = 64 << 10
_MARK = secrets.token_bytes(16)


class SparseImage(io.RawIOBase):
    """A seekable file in memory that keeps only the pages that were written."""

    def __init__(self, content: bytes = b"") -> None:
        super().__init__()
        self.size_bytes = 0
        self.placed = -1
        self._at = 0
        self._awaited = 0
        self._pages: dict[int, bytearray] = {}
        if content:
            self.write(content)
            self._at = 0

    def marker(self, length: int) -> bytes:
        """Bytes whose writing is not kept; `placed` then says where they were to go."""
        self._awaited = length
        self.placed = -1
        return (_MARK * (length // len(_MARK) + 1))[:length]

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = (0, self._at, self.size_bytes)[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def truncate(self, size: int | None = None) -> int:
        self.size_bytes = self._at if size is None else size
        return self.size_bytes

    def write(self, data: ReadableBuffer) -> int:
        view = memoryview(data).cast("B")
        start, length = self._at, len(view)
        self._at += length
        self.size_bytes = max(self.size_bytes, self._at)
        if length == self._awaited and view[:16] == _MARK[:length]:
            self.placed, self._awaited = start, 0
            return length
        done = 0
        while done < length:
            page, within = divmod(start + done, _PAGE_BYTES)
            part = min(length - done, _PAGE_BYTES - within)
            kept = self._pages.setdefault(page, bytearray(_PAGE_BYTES))
            kept[within : within + part] = view[done : done + part]
            done += part
        return length

    def readinto(self, into: WriteableBuffer) -> int:
        view = memoryview(into).cast("B")
        length = max(0, min(len(view), self.size_bytes - self._at))
        done = 0
        while done < length:
            page, within = divmod(self._at + done, _PAGE_BYTES)
            part = min(length - done, _PAGE_BYTES - within)
            kept = self._pages.get(page)
            data = bytes(part) if kept is None else kept[within : within + part]
            view[done : done + part] = data
            done += part
        self._at += length
        return length

    def segments(self) -> Iterator[tuple[int, bytes]]:
        """Offset and content of what was kept, the file's first page last: a reader that
        finds HDF5's signature then finds all."""
        for page in sorted(self._pages, reverse=True):
            start = page * _PAGE_BYTES
            yield start, bytes(self._pages[page][: max(0, self.size_bytes - start)])
