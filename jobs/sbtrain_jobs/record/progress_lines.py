"""What sbtrain says on the job's stderr: a line for each phase, while training one every half
minute; where its user wants it quiet, warnings and errors alone."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable

from sbtrain_perf.wording import duration

EVERY_S = 30.0
ALWAYS_SAID = ("error: ", "warning: ")


class ProgressLines:
    """steps: the steps of the whole run. write and clock are handed in by tests."""

    def __init__(
        self,
        *,
        steps: int,
        quiet: bool = False,
        write: Callable[[str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps = steps
        self._quiet = quiet
        self._write = write or _to_stderr
        self._clock = clock
        self._said_s: float | None = None  # when the last line on steps was written
        self._said_step = 0

    def say(self, words: str) -> None:
        if not self._quiet or words.startswith(ALWAYS_SAID):
            self._write("".join(f"sbtrain: {line}\n" for line in words.splitlines()))

    def step(self, step: int, *, of_planned: bool = True) -> None:
        """Step `step` ended. Says so at the first call and then every EVERY_S seconds.

        of_planned: the script runs as many as were planned, as far as is known."""
        now_s = self._clock()
        come_to = f"step {step}/{self._steps}" if of_planned else f"step {step}"
        if self._said_s is None:
            self.say(come_to)
        elif now_s - self._said_s >= EVERY_S and step > self._said_step:
            rate = (step - self._said_step) / (now_s - self._said_s)
            left_s = max(0, self._steps - step) / rate
            left = f", about {duration(left_s)} left" if of_planned else ""
            self.say(f"{come_to}, {rate:.3g} steps/s{left}")
        else:
            return
        self._said_s, self._said_step = now_s, step


def _to_stderr(text: str) -> None:
    sys.stderr.write(text if _begins_a_line(2) else f"\n{text}")
    sys.stderr.flush()


def _begins_a_line(descriptor: int) -> bool:
    """Whether what is written now begins a line of its own, as far as a file tells."""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size == 0:
            return True
        with open(f"/proc/self/fd/{descriptor}", "rb") as stream:  # noqa: PTH123
            return os.pread(stream.fileno(), 1, found.st_size - 1) in (b"\n", b"")
    except OSError:
        return True
