"""A read-only file that is read in any order; h5py, tarfile and the like take it as one."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class RandomAccess(io.RawIOBase):
    """Keeps the position; where the bytes come from is for read_at to say."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__()
        self.size_bytes = size_bytes
        self._at = 0

    def read_at(self, into: memoryview, offset: int) -> int:
        """Fill a buffer, which ends within the file, from an offset; the bytes that came."""
        raise NotImplementedError

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = (0, self._at, self.size_bytes)[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, into: WriteableBuffer) -> int:
        view = memoryview(into).cast("B")
        length = max(0, min(len(view), self.size_bytes - self._at))
        count = self.read_at(view[:length], self._at) if length else 0
        self._at += count
        return count
