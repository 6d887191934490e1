"""Whether the ranks that the script's own framework sees are those of the plan.

Only what the script has loaded and started is looked at; nothing is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from sbtrain_jobs.errors import LaunchError

_HINT = (
    "sbtrain starts its trainers without an MPI launcher: start the framework from the "
    "variables that it sets (MASTER_ADDR, RANK, WORLD_SIZE), or ask for one node with -N 1"
)


def world_apart(workers: int) -> str:
    """What is wrong with the world that the script's framework sees; or nothing.

    mpi4py counts only where nothing else is loaded that could connect the ranks: other
    packages bring it along.

    Raises:
        LaunchError: the script has started Horovod or torch.distributed, and is alone in it.
    """
    if workers < 2:
        return ""
    for name, size in _started():
        if size == workers:
            return ""
        words = f"{name} sees a world of {size}, the plan has {workers} workers"
        if size == 1:
            raise LaunchError(f"{words}: they would not train together", hint=_HINT)
        return words
    seen = _mpi_size()
    if seen is None or seen == workers or _may_be_connected_otherwise():
        return ""
    return f"mpi4py sees a world of {seen}, the plan has {workers} workers"


def _started() -> Iterator[tuple[str, int]]:
    """The frameworks of ranks that the script has started, with the size of their world."""
    for name in [name for name in sys.modules if name.startswith("horovod.")]:
        module = sys.modules[name]
        try:
            if module.is_initialized():
                yield "Horovod", int(module.size())
                break
        except Exception:  # noqa: S112  # not one of those that have it, or of another form
            continue
    try:
        torch = sys.modules["torch.distributed"]
        if torch.is_available() and torch.is_initialized():
            yield "torch.distributed", int(torch.get_world_size())
    except Exception:
        return


def _mpi_size() -> int | None:
    try:
        mpi = sys.modules["mpi4py.MPI"]
        if mpi.Is_initialized() and not mpi.Is_finalized():
            return int(mpi.COMM_WORLD.Get_size())
    except Exception:
        return None
    return None


def _may_be_connected_otherwise() -> bool:
    return any(name in sys.modules for name in ("torch", "tensorflow", "jax", "horovod"))
