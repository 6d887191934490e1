"""Whether the ranks that the script's own framework sees are those of the plan.

Only what the script has loaded and started is looked at; nothing is imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from sbtrain_perf.values import dataclass

_CONNECTING = ("torch", "tensorflow", "jax", "horovod")
# Python 3.9 does not know the names of its own modules: they are looked into, in vain.
_OF_PYTHON: frozenset[str] = getattr(sys, "stdlib_module_names", frozenset())
_NOT_OWN = _OF_PYTHON.union(_CONNECTING, ("mpi4py", "sbtrain_staging"))
_INSTALLED = {"site-packages", "dist-packages"}
HINT = (
    "start the framework from the variables that sbtrain sets (MASTER_ADDR, RANK, WORLD_SIZE); "
    "ranks that meet through MPI are started so with --train-layout mpi, those of Horovod with "
    "--train-layout horovod"
)
HINT_LAUNCHED = (
    "the launcher in the script and the framework do not fit together: with MPI, try srun "
    "--mpi=pmix or --mpi=pmi2, or the mpirun of its own; with torch.distributed, torchrun"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldApart:
    """What is wrong. alone: the script started the framework, and finds itself alone in it."""

    words: str
    alone: bool = False


def world_apart(workers: int, *, launched: bool = False) -> WorldApart | None:
    """Whether the script's framework sees another world than the plan's workers, or than the
    script's own launcher started; None where it does not, or nothing is known.

    mpi4py counts where the script or a module of the user's imports it, or nothing else is
    loaded that could connect the ranks: installed packages bring it along.
    """
    if workers < 2:
        return None
    ours = f"its launcher started {workers}" if launched else f"the plan has {workers} workers"
    for name, size in _started():
        if size == workers:
            return None
        return WorldApart(words=f"{name} sees a world of {size}, {ours}", alone=size == 1)
    seen = _mpi_size()
    if seen is None or seen == workers or (_others_loaded() and not _user_imports_mpi4py()):
        return None
    return WorldApart(words=f"mpi4py sees a world of {seen}, {ours}")


def _started() -> Iterator[tuple[str, int]]:
    """The frameworks of ranks that the script has started, with the size of their world."""
    for name in [name for name in list(sys.modules) if name.startswith("horovod.")]:
        try:
            module = sys.modules[name]
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


def _others_loaded() -> bool:
    return any(name in sys.modules for name in _CONNECTING)


def _user_imports_mpi4py() -> bool:
    from sbtrain_jobs.script_imports import imported_names

    for path in _own_sources():
        try:
            source = path.read_text(errors="replace")
        except OSError:
            continue
        if "mpi4py" in source and any(
            name.partition(".")[0] == "mpi4py" for name in imported_names(source)
        ):
            return True
    return False


def _own_sources() -> Iterator[Path]:
    """The script and the modules loaded by it that are no installed package's."""
    for name, module in list(sys.modules.items()):
        root = name.partition(".")[0]
        if root in _NOT_OWN or not isinstance(module, ModuleType):
            continue
        # Not getattr: modules may load themselves when they are asked for anything.
        file = object.__getattribute__(module, "__dict__").get("__file__")
        if not isinstance(file, str):
            continue
        own = file.endswith(".py") and not _INSTALLED & set(Path(file).parts)
        if own or name == "__main__":
            yield Path(file)
