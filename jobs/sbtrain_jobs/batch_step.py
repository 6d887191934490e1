"""What Slurm gave the batch step: environment, open files, limits; and what a program that is
to find all of it as it was is started with."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchStep:
    """environ: as it was before this Python started, which adds to its own. open_files: soft
    and hard limit of their number. stdin: the file that it is. stderr_apart: it goes elsewhere
    than stdout."""

    environ: Mapping[bytes, bytes]
    descriptors: frozenset[int]
    open_files: tuple[int, int]
    stdin: str
    stderr_apart: bool


def batch_step() -> BatchStep:
    """To be read before anything of ours opens files or changes limits."""
    return BatchStep(
        environ=_environ(),
        descriptors=open_descriptors(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE),
        stdin=_input(),
        stderr_apart=_stderr_is_apart(),
    )


def open_descriptors() -> frozenset[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):  # that of the listing itself
            os.fstat(int(name))
            found.add(int(name))
    return frozenset(found)


def file_behind(descriptor: int) -> str:
    """The path of the file that it is; empty where it is none, as a pipe, or is closed."""
    try:
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""
    return path if path.startswith("/") else ""


def _input() -> str:
    """Its path; that of nothing where it has none, or is somebody's terminal."""
    path = file_behind(0)
    return path if path and not os.isatty(0) else os.devnull


def _stderr_is_apart() -> bool:
    try:
        return not os.path.samestat(os.fstat(1), os.fstat(2))
    except OSError:
        return False


def _environ() -> dict[bytes, bytes]:
    try:
        text = Path("/proc/self/environ").read_bytes()
    except OSError:
        return dict(os.environb)
    entries = (entry.partition(b"=") for entry in text.split(b"\0"))
    return {name: value for name, equals, value in entries if equals}
