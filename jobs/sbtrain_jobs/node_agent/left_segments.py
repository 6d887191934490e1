"""Shared memory that killed ranks of MPICH have left on a node. Its name is made of the numbers
of job and step, which a requeued job has once more: new ranks would take it for theirs, and
end with "Out of memory"."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

PATTERN = "mpich_shm_*"
YOUNG_S = 60.0  # whoever has just made one may not have mapped it yet


def remove_left_segments(
    folder: Path = Path("/dev/shm"),  # noqa: S108
    processes: Path = Path("/proc"),
) -> int:
    """Remove the user's own that no process has mapped any more; how many."""
    before_s = time.time() - YOUNG_S
    found = dict[str, Path]()
    for segment in folder.glob(PATTERN):
        with contextlib.suppress(OSError):
            about = segment.stat()
            if about.st_uid == os.getuid() and about.st_mtime < before_s:
                found[str(segment)] = segment
    if not found:
        return 0
    for maps in processes.glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            for line in maps.read_text(errors="replace").splitlines():
                found.pop(line.split(maxsplit=5)[-1].removesuffix(" (deleted)"), None)
    for segment in found.values():
        with contextlib.suppress(OSError):
            segment.unlink()
    return len(found)
