"""Files of one JSON object a line that are only ever appended to.

A line is on disk before the call returns. Two writers at once do not tear each other's
line; a line that a crash tore is left out when read, and never glued to the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from sbtrain_perf.codec import decode

Line = TypeVar("Line")


def append_line(path: Path, line: Mapping[str, object]) -> None:
    """Private to the user, made where it is missing. Raises OSError."""
    text = json.dumps(line).encode() + b"\n"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        with contextlib.suppress(OSError):  # some shared filesystems have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            text = b"\n" + text
        os.write(descriptor, text)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_lines(path: Path, kind: type[Line]) -> tuple[tuple[Line, ...], int]:
    """All whole lines, none where there is no file; and how many others there are: torn by
    a crash, or written by a later sbtrain. Raises OSError."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return (), 0
    found, left_out = [], 0
    for line in filter(str.strip, text.split("\n")):
        try:
            found.append(decode(kind, json.loads(line)))
        except (ValueError, RecursionError):
            left_out += 1
    return tuple(found), left_out
