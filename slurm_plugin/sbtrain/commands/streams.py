"""Standard streams as the caller left them: closed, full, or read by nobody any more."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, TextIO, cast

STDOUT, STDERR = 1, 2
WIDTH = 100  # where stdout is no terminal


class StdoutError(OSError):
    """Standard output takes nothing more: it is full, or its reader has gone."""


def mend_streams() -> None:
    """Give a stream that the caller closed a place to write to, before some file takes its
    number. From here on stdout fails with StdoutError, and stderr never."""
    descriptor = os.open(os.devnull, os.O_RDWR)
    while descriptor <= STDERR:
        descriptor = os.open(os.devnull, os.O_RDWR)
    os.close(descriptor)
    raw, encoding = _opened(sys.stdout, STDOUT)
    sys.stdout = _Stdout(raw, encoding=encoding, line_buffering=os.isatty(STDOUT))
    vars(sys)["__stdout__"] = sys.stdout  # shutil and argparse ask it for the terminal's width
    raw, encoding = _opened(sys.stderr, STDERR)
    sys.stderr = _Stderr(raw, encoding=encoding, errors="backslashreplace", line_buffering=True)


def screen_width() -> int:
    """Columns for what goes to stdout: $COLUMNS, else those of the terminal, which behind a
    pipe to a pager is that of stderr; where there is none, 100."""
    said = os.environ.get("COLUMNS", "")
    if said.isdecimal() and int(said):
        return int(said)
    for descriptor in (STDOUT, STDERR):
        with contextlib.suppress(OSError):
            if columns := os.get_terminal_size(descriptor).columns:
                return columns
    return WIDTH


def write_bytes(data: bytes) -> None:
    """To stdout, as they are."""
    with _failing():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def silence(descriptor: int) -> None:
    """Whatever else is written there goes nowhere, and fails no more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


@contextmanager
def told_while_slow(
    what: str, *, who: str = "sbtrain", first_s: float = 3.0, every_s: float = 15.0
) -> Iterator[None]:
    """Say on stderr what is being done, from when it takes longer than `first_s` seconds."""
    done = threading.Event()
    begin_s = time.monotonic()

    def tell() -> None:
        pause_s = first_s
        while not done.wait(pause_s):
            passed_s = time.monotonic() - begin_s
            sys.stderr.write(f"{who}: {what}, {passed_s:.0f} s so far\n")
            pause_s = every_s

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()


def _opened(stream: TextIO | None, descriptor: int) -> tuple[BinaryIO, str]:
    """The bytes below a standard stream, and its encoding."""
    if isinstance(stream, io.TextIOWrapper):
        encoding = stream.encoding
        return cast("BinaryIO", stream.detach()), encoding
    return os.fdopen(descriptor, "wb", closefd=False), "utf-8"


class _Stdout(io.TextIOWrapper):
    def write(self, text: str, /) -> int:
        with _failing():
            return super().write(text)

    def flush(self) -> None:
        with _failing():
            super().flush()


class _Stderr(io.TextIOWrapper):
    """What cannot be said there is left unsaid."""

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except OSError:
            silence(STDERR)
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except OSError:
            silence(STDERR)


@contextmanager
def _failing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        silence(STDOUT)  # nor does it fail at exit
        raise StdoutError(error.errno, error.strerror) from error
