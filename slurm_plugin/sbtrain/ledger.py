"""The user's list of runs, `runs.jsonl`: which run is which job, and where its folder is.

One JSON object a line, only ever appended to, flushed to disk before the call returns. Two
submissions at once do not tear each other's line; a line that a crash tore is skipped.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from sbtrain.errors import HomeError
from sbtrain.home import RUNS_NAME, home, made_home


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One submission. job_id is what sbatch printed; cluster its name where sbatch told;
    submitted: ISO 8601, UTC."""

    run_id: str
    job_id: str
    run_dir: str
    workload: str
    submitted: str
    cluster: str | None = None


def append_run(run: Run, environ: Mapping[str, str]) -> None:
    """Raises HomeError when it cannot be written."""
    path = made_home(environ) / RUNS_NAME
    line = json.dumps(asdict(run)).encode() + b"\n"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise HomeError(
            f"cannot write {path}: {error.strerror}",
            hint="make room there, or set SBTRAIN_HOME to another folder",
        ) from error


def read_runs(environ: Mapping[str, str]) -> tuple[Run, ...]:
    """Every run, the oldest first; none where nothing was submitted yet.

    Raises:
        HomeError: the list is there and cannot be read.
    """
    path = home(environ) / RUNS_NAME
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise HomeError(
            f"cannot read {path}: {error.strerror}", hint="it should belong to you, mode 600"
        ) from error
    from sbtrain_perf.codec import decode

    runs = []
    for line in text.splitlines():
        try:
            runs.append(decode(Run, json.loads(line)))
        except ValueError:
            continue  # torn by a crash, or written by a later sbtrain
    return tuple(runs)


def find_run(name: str, runs: tuple[Run, ...]) -> Run | None:
    """The newest run with this run id or job id (an array's task counts as its job)."""
    for run in reversed(runs):
        if name in (run.run_id, run.job_id) or name.partition("_")[0] == run.job_id:
            return run
    return None
