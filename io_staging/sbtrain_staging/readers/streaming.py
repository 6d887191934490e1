"""Training straight from the shared filesystem: large aligned reads, and reading ahead.

A shared filesystem answers a few large requests at stripe borders far better than many
small ones. h5py, tarfile and TFRecord readers take the file like any other.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from sbtrain_staging.readers.random_access import RandomAccess
from sbtrain_staging.sources.scan import source_trouble
from sbtrain_staging.sources.striping import block_bytes, striping_of

BLOCKS_KEPT = 8
AHEAD = 2
_THREADS = 2


class StreamedFile(RandomAccess):
    """A file read in aligned blocks; where reads go forward, the next blocks come early.

    Holds at most BLOCKS_KEPT blocks, each of the file's stripe size (1 to 16 MiB) or 4 MiB.

    Raises:
        SourceError: the file cannot be opened.
    """

    def __init__(self, path: Path | str) -> None:
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise source_trouble(os.fsencode(path), error) from None
        super().__init__(os.fstat(self._descriptor).st_size)
        self.reads = 0
        self.block_bytes = block_bytes(striping_of(path))
        self._last = -1
        self._blocks: OrderedDict[int, Future[bytes]] = OrderedDict()
        self._threads = ThreadPoolExecutor(_THREADS, "stream")

    def read_at(self, into: memoryview, offset: int) -> int:
        done = 0
        while done < len(into):
            number, within = divmod(offset + done, self.block_bytes)
            part = self._block(number)[within : within + len(into) - done]
            if not part:
                break
            into[done : done + len(part)] = part
            done += len(part)
        return done

    def _block(self, number: int) -> bytes:
        wanted = [number]
        if number == self._last + 1:
            wanted += range(number + 1, number + 1 + AHEAD)
        self._last = number
        for block in wanted:
            if block not in self._blocks and block * self.block_bytes < self.size_bytes:
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
