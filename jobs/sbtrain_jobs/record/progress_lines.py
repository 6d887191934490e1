"""One line on the job's stderr for each phase, and while training one every half minute."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from sbtrain_perf.wording import duration

EVERY_S = 30.0


class ProgressLines:
    """steps: the steps of the whole run. write and clock are handed in by tests."""

    def __init__(
        self,
        *,
        steps: int,
        write: Callable[[str], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._steps = steps
        self._write = write or _to_stderr
        self._clock = clock
        self._said_s: float | None = None  # when the last line on steps was written
        self._said_step = 0

    def say(self, words: str) -> None:
        self._write(f"sbtrain: {words}\n")

    def step(self, step: int) -> None:
        """Step `step` ended. Says so at the first call and then every EVERY_S seconds."""
        now_s = self._clock()
        if self._said_s is None:
            self.say(f"step {step}/{self._steps}")
        elif now_s - self._said_s >= EVERY_S and step > self._said_step:
            rate = (step - self._said_step) / (now_s - self._said_s)
            left_s = max(0, self._steps - step) / rate
            self.say(
                f"step {step}/{self._steps}, {rate:.3g} steps/s, about {duration(left_s)} left"
            )
        else:
            return
        self._said_s, self._said_step = now_s, step


def _to_stderr(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
