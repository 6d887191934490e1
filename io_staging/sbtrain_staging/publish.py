"""Making files visible all at once: written aside, flushed to disk, then renamed."""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
from pathlib import Path

TEMPORARY_MARK = ".sbtrain-tmp-"


def temporary_beside(target: Path) -> Path:
    """A name in target's folder that no reader takes for finished work."""
    return target.with_name(f".{target.name}{TEMPORARY_MARK}{secrets.token_hex(6)}")


def publish_bytes(target: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file so that readers see all of it or nothing, also after a crash."""
    temporary = temporary_beside(target)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        publish_path(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def publish_path(temporary: Path, target: Path) -> None:
    """Rename a flushed file or folder to its final name and flush the folder entry."""
    temporary.rename(target)
    fsync_folder(target.parent)


def exchange(one: Path, other: Path) -> None:
    """Let two names of a filesystem change places, at once where it can do that."""
    call = getattr(ctypes.CDLL(None), "renameat2", None)
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    if call is not None and call(here, bytes(one), here, bytes(other), swap) == 0:
        return
    aside = temporary_beside(one)
    one.rename(aside)
    try:
        other.rename(one)
        aside.rename(other)
    except OSError:
        with contextlib.suppress(OSError):
            one.rename(other)
        raise


def fsync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
