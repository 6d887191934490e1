"""What a script saves by itself: when, how long it took, and where it is."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from sbtrain_jobs.hooks.step_times import step_times
from sbtrain_jobs.hooks.witness import witness
from sbtrain_jobs.wire.messages import PhaseDone, Saved

SMALLEST_BYTES = 1024  # what is smaller is no model


def slip_into(module: ModuleType) -> None:
    """Notice what a module that has just been imported writes."""
    if module.__name__ == "torch.serialization":
        _notice(module, "save", path="f")
    elif module.__name__.endswith(".cloud_io"):
        _notice(module, "_atomic_save", path="filepath")
    else:
        for name in ("save", "save_weights"):
            _notice(module.Model, name, path="filepath")


def _notice(owner: Any, name: str, *, path: str) -> None:
    """path: the argument that names the file."""
    original = getattr(owner, name)
    signature = inspect.signature(original)

    @functools.wraps(original)
    def noticed(*args: Any, **named: Any) -> Any:
        began_s = time.perf_counter()
        result = original(*args, **named)
        with contextlib.suppress(Exception):
            given = signature.bind(*args, **named).arguments[path]
            if isinstance(given, (str, os.PathLike)):
                _tell(Path(given), time.perf_counter() - began_s)
        return result

    setattr(owner, name, noticed)


def _tell(path: Path, seconds: float) -> None:
    size_bytes = path.stat().st_size
    if size_bytes < SMALLEST_BYTES:
        return
    own, step = witness(), step_times().step
    own.say(
        PhaseDone(
            rank=own.rank, name="checkpoint", seconds=seconds, step=step, size_bytes=size_bytes
        )
    )
    own.say(Saved(rank=own.rank, step=step, path=str(path.absolute())))
