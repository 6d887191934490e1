"""Locks between processes of one node; the kernel drops them when their holder dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


class FileLock:
    """An exclusive lock on a file that exists only while it is of use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def try_acquire(self) -> bool:
        """Whether the lock is ours now; False while another process holds it."""
        while True:
            descriptor = os.open(
                self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                return False
            if self._is_current(descriptor):
                self._descriptor = descriptor
                return True
            os.close(descriptor)

    def _is_current(self, descriptor: int) -> bool:
        """Whether the locked file still has the name: its last holder may have removed it."""
        try:
            named = self.path.stat()
        except FileNotFoundError:
            return False
        return named.st_ino == os.fstat(descriptor).st_ino

    def release(self, *, remove: bool = True) -> None:
        if self._descriptor is None:
            return
        if remove:
            self.path.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = None


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock for a short step, waiting for it."""
    descriptor = os.open(path, _FLAGS, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
