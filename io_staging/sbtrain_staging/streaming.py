"""Training straight from the shared filesystem: large aligned reads, and reading ahead.

A shared filesystem answers a few large requests at stripe borders far better than many
small ones. h5py, tarfile and TFRecord readers take the file like any other.
"""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain_staging.scan import source_trouble
from sbtrain_staging.striping import block_bytes, striping_of

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

BLOCKS_KEPT = 8
AHEAD = 2
_THREADS = 2


class StreamedFile(io.RawIOBase):
    """A file read in aligned blocks; where reads go forward, the next blocks come early.

    Holds at most BLOCKS_KEPT blocks, each of the file's stripe size (1 to 16 MiB) or 4 MiB.

    Raises:
        SourceError: the file cannot be opened.
    """

    def __init__(self, path: Path | str) -> None:
        super().__init__()
        self.reads = 0
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise source_trouble(os.fsencode(path), error) from None
        self._size_bytes = os.fstat(self._descriptor).st_size
        self.block_bytes = block_bytes(striping_of(path))
        self._at = 0
        self._last = -1
        self._blocks: OrderedDict[int, Future[bytes]] = OrderedDict()
        self._threads = ThreadPoolExecutor(_THREADS, "stream")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = (0, self._at, self._size_bytes)[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, into: Buffer) -> int:
        view = memoryview(into).cast("B")
        length = max(0, min(len(view), self._size_bytes - self._at))
        done = 0
        while done < length:
            number, within = divmod(self._at + done, self.block_bytes)
            block = self._block(number)
            part = block[within : within + length - done]
            if not part:
                break
            view[done : done + len(part)] = part
            done += len(part)
        self._at += done
        return done

    def _block(self, number: int) -> bytes:
        wanted = [number]
        if number == self._last + 1:
            wanted += range(number + 1, number + 1 + AHEAD)
        self._last = number
        for block in wanted:
            if block not in self._blocks and block * self.block_bytes < self._size_bytes:
                self._blocks[block] = self._threads.submit(self._read, block)
            if block in self._blocks:
                self._blocks.move_to_end(block)
        self._blocks.move_to_end(number)
        while len(self._blocks) > BLOCKS_KEPT:
            self._blocks.popitem(last=False)
        return self._blocks[number].result()

    def _read(self, number: int) -> bytes:
        self.reads += 1
        return os.pread(self._descriptor, self.block_bytes, number * self.block_bytes)

    def close(self) -> None:
        if not self.closed:
            self._threads.shutdown(cancel_futures=True)
            os.close(self._descriptor)
        super().close()
