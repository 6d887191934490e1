"""What a script saves by itself: when, how long it took, and where it is."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import time
from collections.abc import Callable, Mapping
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from sbtrain_jobs.hooks.step_times import step_times
from sbtrain_jobs.hooks.witness import witness
from sbtrain_jobs.wire.messages import PhaseDone, Saved

SMALLEST_BYTES = 1024  # what is smaller is no model

Arguments = Mapping[str, Any]
PathOf = Callable[[Arguments], Any]  # what a call writes, by its arguments


def slip_into(module: ModuleType) -> None:
    """Notice what a module that has just been imported writes."""
    for owner, name, path_of in _WRITERS[module.__name__.rpartition(".")[2]]:
        _notice(getattr(module, owner) if owner else module, name, path_of)


_WRITERS: dict[str, tuple[tuple[str, str, PathOf], ...]] = {
    "serialization": (("", "save", itemgetter("f")),),
    "state_dict_saver": (("", "save", itemgetter("checkpoint_id")),),
    "cloud_io": (("", "_atomic_save", itemgetter("filepath")),),  # Lightning's
    "model": (
        ("Model", "save", itemgetter("filepath")),
        ("Model", "save_weights", itemgetter("filepath")),
    ),
    "checkpoint_manager": (  # Orbax's, which writes on when the call has returned
        (
            "CheckpointManager",
            "save",
            lambda given: given["self"].directory / str(given["step"]),
        ),
    ),
}


def _notice(owner: Any, name: str, path_of: PathOf) -> None:
    original = getattr(owner, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def noticed(*args: Any, **named: Any) -> Any:
        began_s = time.perf_counter()
        result = original(*args, **named)
        with contextlib.suppress(Exception):
            path = path_of(signature.bind(*args, **named).arguments)
            if result is not False and isinstance(path, (str, os.PathLike)):
                _tell(Path(path), time.perf_counter() - began_s)
        return result

    setattr(owner, name, noticed)


def _tell(path: Path, seconds: float) -> None:
    own, times = witness(), step_times()
    step = times.step
    times.leave_out(seconds)
    if path.exists():
        size_bytes = _size_bytes(path)
        if size_bytes < SMALLEST_BYTES:
            return
        own.say(
            PhaseDone(
                rank=own.rank,
                name="checkpoint",
                seconds=seconds,
                step=step,
                size_bytes=size_bytes,
            )
        )
    own.say(Saved(rank=own.rank, step=step, path=str(path.absolute())))


def _size_bytes(path: Path) -> int:
    if path.is_dir():
        return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())
    return path.stat().st_size
