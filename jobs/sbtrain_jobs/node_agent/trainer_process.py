"""One trainer's process, as the agent of its node sees it: start, watch, end, never lose one.

Its output goes straight into its log file, so that nothing is lost and nothing blocks when
the agent is slow or gone; the chief's is copied from there to the job's output.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from sbtrain_jobs.process import start_process
from sbtrain_jobs.signals import handles

COPY_BYTES = 1 << 16
TERM_TO_KILL_S = 5.0  # of the grace, for trainers that have had another signal first


class TrainerProcess:
    """A running trainer: leader of its own session.

    The leader is not reaped before its whole session is ended, so the number of the process
    group cannot come to belong to anyone else in between.

    Raises:
        CommandMissingError: the program is not there.
        OSError: the log file cannot be opened.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        rank: int,
        log: Path,
        environment: Mapping[str, str],
        ignored_signals: Sequence[signal.Signals],
        copy_to: BinaryIO | None,
    ) -> None:
        self.rank = rank
        self.log = log
        self.returncode: int | None = None
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._copied_bytes = os.fstat(descriptor).st_size
        self._copy_to = copy_to
        try:
            with os.fdopen(descriptor, "wb") as stream, ignored(ignored_signals):
                self._process = start_process(
                    argv, env=environment, stdout=stream, stderr=stream, outlives_us=False
                )
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(log)) from error
        self._term_at_s: float | None = None
        self._kill_at_s: float | None = None

    def look(self) -> bool:
        """Copy new output, kill when its grace is over; whether it has ended."""
        if self.returncode is not None:
            return True
        if self._term_at_s is not None and time.monotonic() >= self._term_at_s:
            self._term_at_s = None
            self._signal(signal.SIGTERM)
        if self._kill_at_s is not None and time.monotonic() >= self._kill_at_s:
            self._signal(signal.SIGKILL)
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            self.copy_output()
            return False
        self._signal(signal.SIGKILL)  # what it left behind in its session
        self.returncode = self._process.wait()
        self.copy_output()
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

    def copy_output(self) -> None:
        """Append to copy_to what the log has gained."""
        if self._copy_to is None:
            return
        try:
            with self.log.open("rb") as stream:
                stream.seek(self._copied_bytes)
                while block := stream.read(COPY_BYTES):
                    self._copy_to.write(block)
                    self._copied_bytes += len(block)
            self._copy_to.flush()
        except OSError as error:
            self._copy_to = None  # the log file has it all
            sys.stderr.write(f"sbtrain: output is no longer copied from {self.log}: {error}\n")

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
