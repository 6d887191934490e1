"""The event log of a run: one JSON object a line, appended; private to the user.

Lines of staging: `begin` and `end` of a source, `progress` between. Times are UTC.
"""

from __future__ import annotations

import contextlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path


class EventLog:
    """Appends to an event log. What cannot be written is left out: no run ends over it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, event: str, **facts: str | float) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": at, "source": "staging", "event": event, **facts})
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, flags, 0o600)
            try:
                os.write(descriptor, line.encode() + b"\n")
            finally:
                os.close(descriptor)


def newest_event(path: Path) -> dict[str, object] | None:
    """The last whole line of an event log; None where there is none."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(line)
            if isinstance(found, dict):
                return found
    return None
