"""The meeting of the ranks: who came to it, and who waited there in vain.

MPI's start cannot be interrupted from Python, so that the kernel ends a rank that waits too
long. What such a rank can still do is to leave a word: beside the report each rank puts a
file with its node's name, which stays empty unless it waited in vain. A rank that never
came has none, and one that came and was stopped has an empty one.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import time
from pathlib import Path

MEETING_LIMIT_S = 300  # of MPI's start, the slowest node's Python included
# Its own, and that of a launcher which ends all ranks with the first.
_LAST = (signal.SIGALRM, signal.SIGTERM)
_mark: int | None = None
_came_s = 0.0


def _folder(report: Path) -> Path:
    return report.with_name(f"{report.stem}-meeting")


def come(report: Path, node: str) -> None:
    """Leave a word that this node's rank is there, where one can be left."""
    global _mark, _came_s
    _came_s = time.monotonic()
    with contextlib.suppress(OSError):
        _folder(report).mkdir(mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        _mark = os.open(_folder(report) / node, flags, 0o600)


def end_if_alone() -> None:
    """Have the kernel end this rank where the others do not come in time."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    late = time.monotonic() - _came_s > MEETING_LIMIT_S / 2  # it stood still meanwhile
    if _mark is not None and not late:
        # Writes from within the signal, also while Python stands still; then the rank ends.
        for number in _LAST:
            faulthandler.register(number, file=_mark, all_threads=False, chain=True)
    signal.alarm(MEETING_LIMIT_S)


def met(report: Path, node: str) -> None:
    """Take the word back; the last one to do so removes the folder."""
    global _mark
    signal.alarm(0)
    if _mark is None:
        return
    for number in _LAST:
        faulthandler.unregister(number)
    os.close(_mark)
    _mark = None
    with contextlib.suppress(OSError):
        (_folder(report) / node).unlink()
        _folder(report).rmdir()


def waited_in_vain(report: Path) -> frozenset[str]:
    """The nodes whose ranks were there and met nobody; empty where all met, or none came."""
    try:
        return frozenset(mark.name for mark in _folder(report).iterdir() if _size(mark))
    except OSError:
        return frozenset()


def _size(mark: Path) -> int:
    try:
        return mark.stat().st_size
    except OSError:
        return 0
