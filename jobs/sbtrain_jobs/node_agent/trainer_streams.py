"""What a trainer reads and writes: files, so that nothing is lost and nothing blocks when the
agent is slow or gone; and what of them is copied into the job's own output."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from sbtrain_jobs.errors import LaunchError

COPY_BYTES = 1 << 16
MOST_AT_ONCE_BYTES = 1 << 24  # then the agent looks at its other duties


@dataclass(slots=True, kw_only=True)
class LogFile:
    """A trainer appends to it. copy_to gets what it gains from now on, in order."""

    path: Path
    copy_to: BinaryIO | None = None
    _copied_bytes: int = field(default=0, init=False)

    def opened(self) -> int:
        """A descriptor for the trainer. Raises OSError."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._copied_bytes = os.fstat(descriptor).st_size
        return descriptor

    def copied(self) -> bool:
        """Copy some of what is new; whether that was all."""
        if self.copy_to is None:
            return True
        until_bytes = self._copied_bytes + MOST_AT_ONCE_BYTES
        try:
            with self.path.open("rb") as stream:
                stream.seek(self._copied_bytes)
                while self._copied_bytes < until_bytes and (block := stream.read(COPY_BYTES)):
                    self.copy_to.write(block)
                    self._copied_bytes += len(block)
            self.copy_to.flush()
        except OSError as error:
            self.copy_to = None  # the log file has it all
            sys.stderr.write(
                f"sbtrain: warning: output is no longer copied from {self.path}: {error}\n"
            )
        return self.copy_to is None or self._copied_bytes < until_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerStreams:
    """stderr: None where it goes to the file of stdout, in the order in which both are
    written. stdin: each trainer reads the file from its beginning."""

    stdout: LogFile
    stderr: LogFile | None = None
    stdin: str = os.devnull

    @contextlib.contextmanager
    def opened(self) -> Iterator[tuple[int, int, int]]:
        """The descriptors that a trainer starts with.

        Raises:
            OSError: a log file cannot be opened.
            LaunchError: standard input cannot.
        """
        with contextlib.ExitStack() as stack:
            found = []
            for log in (self.stdout, self.stderr):
                if log is not None:
                    found.append(log.opened())
                    stack.callback(os.close, found[-1])
            stdin = _opened_input(self.stdin)
            stack.callback(os.close, stdin)
            yield stdin, found[0], found[-1]

    def copied(self) -> bool:
        """Copy some of what is new; whether that was all."""
        done = self.stdout.copied()
        return (self.stderr is None or self.stderr.copied()) and done


def _opened_input(path: str) -> int:
    try:
        # A pipe with a name is not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise LaunchError(
            f"standard input {path} cannot be read: {error.strerror}",
            hint="every rank reads the file that --input names: it must be on a filesystem "
            "that all nodes share",
        ) from error
    os.set_blocking(descriptor, True)
    return descriptor
