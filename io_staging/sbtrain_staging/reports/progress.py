"""Progress on stderr and in the event log: rate, time left and the node that is behind; by
rank 0 alone."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TextIO

from sbtrain_staging.reports.events import EventLog

# Below this a run needs no progress.
QUIET_S = 2.0
_BETWEEN_S = 2.0
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


class StagingProgress:
    """Prints how far all nodes are, at most every two seconds."""

    def __init__(
        self,
        *,
        node_names: Sequence[str],
        stream: TextIO | None = None,
        events: EventLog | None = None,
        quiet: bool = False,
    ) -> None:
        self._names = node_names
        self._stream = stream or sys.stderr
        self._events = events
        self._quiet = quiet
        self._wanted: Sequence[int] = ()
        self._title = ""
        self._started = self._printed = time.monotonic()

    def begin(self, title: str, wanted_bytes: Sequence[int]) -> None:
        """A source starts: what each node will take in."""
        self._title = title
        self._wanted = wanted_bytes
        self._started = time.monotonic()
        self._printed = self._started + QUIET_S - _BETWEEN_S
        if self._events is not None:
            self._events.add("begin", title=title, bytes=max(wanted_bytes, default=0))

    def end(self, done_bytes: Sequence[int]) -> None:
        """A source is there: on every node that many bytes of it."""
        if self._events is not None:
            self._tell("end", done_bytes, time.monotonic() - self._started)

    def say(self, line: str) -> None:
        if not self._quiet:
            self._stream.write(f"sbtrain: {line}\n")
            self._stream.flush()

    def show(self, done_bytes: Sequence[int]) -> None:
        now = time.monotonic()
        if now - self._printed < _BETWEEN_S or not self._wanted:
            return
        self._printed = now
        self.say(self.line(done_bytes, now - self._started))
        if self._events is not None:
            self._tell("progress", done_bytes, now - self._started)

    def _behind(self, done_bytes: Sequence[int]) -> int:
        """The rank that lacks most."""
        left = [w - d for w, d in zip(self._wanted, done_bytes, strict=True)]
        return max(range(len(left)), key=left.__getitem__)

    def _tell(self, event: str, done_bytes: Sequence[int], elapsed_s: float) -> None:
        if self._events is None or not self._wanted:
            return
        behind = self._behind(done_bytes)
        done = done_bytes[behind]
        self._events.add(
            event,
            title=self._title,
            node=self._names[behind],
            bytes=self._wanted[behind],
            done_bytes=done,
            seconds=round(elapsed_s, 3),
            bytes_1_s=round(done / elapsed_s) if elapsed_s else 0,
            behind_bytes=max(done_bytes) - done,
        )

    def line(self, done_bytes: Sequence[int], elapsed_s: float) -> str:
        behind = self._behind(done_bytes)
        done, wanted = done_bytes[behind], self._wanted[behind]
        rate = done / elapsed_s if elapsed_s else 0.0
        text = f"{self._title}: {shown_bytes(done)} of {shown_bytes(wanted)}"
        text += f", {shown_bytes(rate)}/s"
        if rate:
            text += f", {(wanted - done) / rate:.0f} s left"
        ahead = max(done_bytes)
        if len(done_bytes) > 1 and ahead > done:
            text += f"; {self._names[behind]} is {shown_bytes(ahead - done)} behind"
        return text


def shown_bytes(count: float) -> str:
    """A size with its decimal unit, in three digits."""
    for unit in _UNITS:
        if count < 1000 or unit == _UNITS[-1]:
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
