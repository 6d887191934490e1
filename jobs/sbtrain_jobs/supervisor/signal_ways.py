"""By which way a signal came to the batch step: to this process alone, to its group, or to all
processes of the step.

Slurm sends `--signal=B:` and `scancel --batch` to the batch script's process alone, `scancel
--full` to its group, and TERM, CONT and the signals of a suspension to every process of the
step. A batch script that runs as a child of ours has had the last ones already.

Two processes are witnesses: they do nothing but wait for signals, one in this process's group,
one in a group of its own. Who has had the signal too tells the way. STOP cannot be caught: so
the second one also looks whether this process alone stands still, and then stops the script.
"""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NoReturn

from sbtrain_jobs.process import dying_with
from sbtrain_jobs.signals import is_pending

Way = Literal["process", "group", "step"]
SETTLE_S = 0.2  # within which Slurm has signalled all processes
_RECENT_S = 2.0
_LOOK_EVERY_S = 0.5
_SIGHTING = struct.Struct("=id")  # a signal, and when it came
_ORDER = struct.Struct("=i")  # the process to follow


class _Witness:
    def __init__(self, *, own_group: bool) -> None:
        self._reader, writer = os.pipe()
        orders, self._orders = os.pipe()
        ready = dying_with(os.getpid())
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self.pid = os.fork()
            if self.pid == 0:
                _bear_witness(writer, orders, ready)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        if own_group:
            os.setpgid(self.pid, self.pid)  # before anybody signals ours
        os.close(writer)
        os.close(orders)
        os.set_blocking(self._reader, False)
        self._seen: dict[int, float] = {}  # when each came last

    def follow(self, pid: int) -> None:
        os.write(self._orders, _ORDER.pack(pid))

    def saw(self, number: int) -> bool:
        """Whether the signal came within the last moments; each is told of once."""
        with contextlib.suppress(BlockingIOError):
            while told := os.read(self._reader, _SIGHTING.size * 64):
                self._seen.update(_SIGHTING.iter_unpack(told))
        seen_s = self._seen.pop(number, -_RECENT_S)
        return time.monotonic() - seen_s < _RECENT_S or is_pending(number, self.pid)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._reader)
        os.close(self._orders)


class SignalWays:
    """To be made in the main thread, before there is another: it forks."""

    def __init__(self) -> None:
        self._in_group = _Witness(own_group=False)
        self._elsewhere = _Witness(own_group=True)
        self._waiting: list[tuple[float, int]] = []

    def follow(self, pid: int) -> None:
        """The process that is to stand still while this one alone does."""
        self._elsewhere.follow(pid)

    def arrived(self, number: int) -> None:
        self._waiting.append((time.monotonic() + SETTLE_S, number))

    def known(self) -> list[tuple[int, Way]]:
        """Signals whose way is known by now, in the order of their arrival."""
        now_s = time.monotonic()
        due = [number for at_s, number in self._waiting if at_s <= now_s]
        self._waiting = [one for one in self._waiting if one[0] > now_s]
        return [(number, self._way(number)) for number in dict.fromkeys(due)]

    @property
    def next_s(self) -> float | None:
        """Seconds until the way of another one is known; None where none waits."""
        if not self._waiting:
            return None
        return max(0.0, self._waiting[0][0] - time.monotonic())

    def end(self) -> None:
        self._in_group.end()
        self._elsewhere.end()

    def _way(self, number: int) -> Way:
        in_group, elsewhere = self._in_group.saw(number), self._elsewhere.saw(number)
        return "step" if elsewhere else "group" if in_group else "process"


def _bear_witness(writer: int, orders: int, ready: Callable[[], None]) -> NoReturn:
    """The child: all signals are blocked, each that comes is written down. It keeps none of
    the step's files open, and dies with its parent."""
    parent, followed, stopped = os.getppid(), 0, False
    try:
        ready()
        low, high = sorted((writer, orders))
        os.closerange(0, low)
        os.closerange(low + 1, high)
        os.closerange(high + 1, os.sysconf("SC_OPEN_MAX"))
        os.set_blocking(orders, False)
        while True:
            told = signal.sigtimedwait(signal.valid_signals(), _LOOK_EVERY_S)
            if told is not None:
                os.write(writer, _SIGHTING.pack(told.si_signo, time.monotonic()))
                continue
            with contextlib.suppress(BlockingIOError):
                (followed,) = _ORDER.unpack(os.read(orders, _ORDER.size))
            # Looked at twice: after a suspension we may go on a moment before it does.
            if stopped and _is_stopped(parent) and followed:
                os.kill(followed, signal.SIGSTOP)
            stopped = _is_stopped(parent)
    finally:
        os._exit(0)


def _is_stopped(pid: int) -> bool:
    return ") T " in Path(f"/proc/{pid}/stat").read_text()
