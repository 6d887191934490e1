"""One trainer's process, as its node's agent sees it: start, watch, end, never lose one."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sbtrain_jobs.node_agent.trainer_streams import TrainerStreams
from sbtrain_jobs.process import start_process
from sbtrain_jobs.signals import handles

TERM_TO_KILL_S = 5.0  # of the grace, for trainers that have had another signal first


class TrainerProcess:
    """A running trainer: leader of its own session.

    The leader is not reaped before its whole session is ended, so the number of the process
    group cannot come to belong to anyone else in between. descriptors: open files that it
    inherits.

    Raises:
        CommandMissingError: the program is not there.
        OSError: a log file cannot be opened.
        LaunchError: its standard input cannot.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        rank: int,
        streams: TrainerStreams,
        environment: Mapping[str, str],
        ignored_signals: Sequence[signal.Signals],
        descriptors: Sequence[int] = (),
    ) -> None:
        self.rank = rank
        self.returncode: int | None = None
        self._streams = streams
        with streams.opened() as (stdin, stdout, stderr), ignored(ignored_signals):
            self._process = start_process(
                argv,
                env=environment,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                pass_fds=descriptors,
                outlives_us=False,
            )
        self._term_at_s: float | None = None
        self._kill_at_s: float | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    def look(self) -> bool:
        """Copy new output, kill when its grace is over; whether it has ended, and all of its
        output is copied."""
        if self.returncode is not None:
            return True
        if self._term_at_s is not None and time.monotonic() >= self._term_at_s:
            self._term_at_s = None
            self._signal(signal.SIGTERM)
        if self._kill_at_s is not None and time.monotonic() >= self._kill_at_s:
            self._signal(signal.SIGKILL)
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is not None:
            self._signal(signal.SIGKILL)  # what it left behind in its session
        if not self._streams.copied() or ended is None:
            return False
        self.returncode = self._process.wait()
        return True

    def end(self, *, grace_s: float) -> None:
        """TERM now, KILL after grace_s seconds (in a later `look`). Asked again: the sooner."""
        if self.returncode is not None:
            return
        if self._kill_at_s is None or self._term_at_s is not None:
            self._term_at_s = None
            self._signal(signal.SIGTERM)
        self._kill_by(time.monotonic() + grace_s)

    def end_after(self, first: signal.Signals, *, grace_s: float, delivered: bool) -> None:
        """Like `end`, but processes that handle `first` get it now, and TERM comes when they
        have had their time. Where none does, it is `end`: the signal would only kill.

        Args:
            delivered: they have had the signal already.
        """
        if self.returncode is not None:
            return
        if self._kill_at_s is None:
            handling = processes_handling(first, session=self._process.pid)
            if not handling:
                self.end(grace_s=grace_s)
                return
            for pid in () if delivered else handling:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, first)
            self._term_at_s = float("inf")
        self._kill_by(time.monotonic() + grace_s)
        if self._term_at_s is not None:
            last_s = min(TERM_TO_KILL_S, grace_s / 4)
            self._term_at_s = min(self._term_at_s, time.monotonic() + grace_s - last_s)

    def _kill_by(self, at_s: float) -> None:
        self._kill_at_s = at_s if self._kill_at_s is None else min(self._kill_at_s, at_s)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def processes_handling(number: signal.Signals, *, session: int) -> tuple[int, ...]:
    """The processes of a session that have a handler of their own for a signal. Its leader
    must not have been reaped."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError, ValueError):
            pid = int(entry.name)
            if os.getsid(pid) == session and handles(number, pid):
                found.append(pid)
    return tuple(found)


@contextlib.contextmanager
def ignored(numbers: Sequence[signal.Signals]) -> Iterator[None]:
    """Signals that a program started here ignores until it says otherwise.

    Slurm sends a step's user signal to every process of it; a trainer that has not come to
    its own handler yet would die of it, before it could save. Main thread only.
    """
    before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
