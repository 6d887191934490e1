"""Times steps and hands the times on in batches, at most once an interval."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

Report = Callable[[int, tuple[float, ...]], None]  # first step, seconds of each from there


class StepClock:
    """Times of consecutive steps, in seconds.

    A step without a report costs two readings of the clock and one append (measured by
    benchmarks/step_clock.py).

    Args:
        report: gets the batches, in order; a batch has at least one step.
        interval_s: least seconds from one batch to the next, except for `flush`.
        clock: monotonic seconds.
    """

    __slots__ = ("_began", "_clock", "_due", "_first", "_interval_s", "_report", "_seconds")

    def __init__(
        self,
        report: Report,
        *,
        interval_s: float = 1.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._report = report
        self._interval_s = interval_s
        self._clock = clock
        self._first = 1
        self._seconds: list[float] = []
        self._began = 0.0
        self._due = clock() + interval_s

    def begin(self, step: int) -> None:
        if step != self._first + len(self._seconds):
            self.flush()
            self._first = step
        self._began = self._clock()

    def leave_out(self, seconds: float) -> None:
        """So much of the time since begin() was not the step's."""
        self._began += seconds

    def end(self, steps: int = 1) -> float:
        """End the step that begin() started, or so many that ran as one.

        Returns:
            The clock's reading, which callers need as well.
        """
        now = self._clock()
        if steps == 1:
            self._seconds.append(now - self._began)
        else:
            self._seconds += [(now - self._began) / steps] * steps
        if now >= self._due:
            self.flush()
            self._due = now + self._interval_s
        return now

    def flush(self) -> None:
        """Hand on what has not been handed on yet."""
        if self._seconds:
            first, seconds = self._first, tuple(self._seconds)
            self._first += len(seconds)
            self._seconds.clear()
            self._report(first, seconds)


def process_age_s() -> float:
    """Seconds since this process was started, to 10 ms; interpreter start included."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
