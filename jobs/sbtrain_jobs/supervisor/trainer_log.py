"""How a trainer's process ended and what its logs say last, in words for an error."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path

from sbtrain_jobs.run_folder import AttemptFolder

# As MPICH and Open MPI write it.
_ABORTED = re.compile(r"MPI_Abort\(\w+, (\d+)\)|MPI_ABORT was invoked[^\0]*?errorcode (\d+)")
LAST_LINES = 8
LAST_BYTES = 4096


def how_it_ended(returncode: int) -> str:
    if returncode >= 0:
        return f"ended with exit status {returncode}"
    try:
        return f"was ended by {signal.Signals(-returncode).name}"
    except ValueError:
        return f"was ended by signal {-returncode}"


def last_words(folder: AttemptFolder, role_name: str) -> str:
    """The ends of a trainer's logs: of its stderr, where that has a file of its own and
    something is in it, and of its output."""
    log, errors = folder.trainer_log(role_name), folder.trainer_errors(role_name)
    logs = [path for path in (errors, log) if _holds_something(path)] or [log]
    return "\n".join(f"the end of {path}:\n{last_lines(path)}" for path in logs)


def aborted_through_mpi(
    folder: AttemptFolder, role_names: Sequence[str]
) -> list[tuple[int, int]]:
    """How the ranks of these names ended where the log of one tells of MPI_Abort: that one
    first, with the exit status that it named, the others killed; nothing where none does."""
    for rank, name in enumerate(role_names):
        for log in (folder.trainer_errors(name), folder.trainer_log(name)):
            if found := _ABORTED.search(last_lines(log)):
                others = [one for one in range(len(role_names)) if one != rank]
                code = int(found[1] or found[2]) or 1
                return [(rank, code), *((one, -signal.SIGKILL) for one in others)]
    return []


def _holds_something(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def last_lines(log: Path) -> str:
    """The end of a trainer's log, indented; says so where there is none."""
    try:
        with log.open("rb") as stream:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - LAST_BYTES))
            lines = stream.read().decode(errors="replace").splitlines()[-LAST_LINES:]
    except OSError as error:
        return f"    (cannot be read: {error.strerror})"
    return "\n".join(f"    {line}" for line in lines) or "    (it is empty)"
