"""Which rank of which world a process is, by what the launcher that a script called has set:
torchrun and its like, mpirun, srun. Nothing set: a process alone."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from sbtrain_perf.values import dataclass

PROGRAM = ".program"  # beside checkpoints: the name of the program whose they are

_WorldOf = Callable[[Mapping[str, str]], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedRank:
    """rank 0 to size - 1. world: the same for all ranks that one launch started, as far as
    they can know it; a later launch may have the same. beside: ranks on this node."""

    rank: int
    size: int
    world: str
    beside: int = 1


def checkpoints_of(folder: Path, program: str) -> Path:
    """Where a program of the script keeps its checkpoints: the first one that joins in the
    run's own folder, any other one in a folder below it, or it would load what that one saved.
    """
    mark = folder / PROGRAM
    try:
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=".", delete=False) as file:
            file.write(program)
        try:
            os.link(file.name, mark)
        finally:
            os.unlink(file.name)  # noqa: PTH108
    except FileExistsError:
        pass
    except OSError:
        return folder  # a later save says what is wrong with it
    try:
        first = mark.read_text()
    except OSError:
        return folder
    return folder if first == program else folder / program


def launched_rank(environ: Mapping[str, str]) -> LaunchedRank:
    """What stands innermost counts: torchrun under mpirun under srun is torchrun's."""
    found = (
        _said(environ, "RANK", "WORLD_SIZE", beside="LOCAL_WORLD_SIZE", world=_torch_world)
        or _said(
            environ,
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            beside="OMPI_COMM_WORLD_LOCAL_SIZE",
            world=_mpi_world,
        )
        or _said(environ, "PMI_RANK", "PMI_SIZE", beside="MPI_LOCALNRANKS", world=_mpi_world)
        or _in_step(environ)
    )
    if found is not None and found.size > 1:
        return found
    node = environ.get("SLURMD_NODENAME", "")
    return LaunchedRank(rank=0, size=1, world=f"process {os.getpid()} on {node}")


def _said(
    environ: Mapping[str, str], rank: str, size: str, *, beside: str, world: _WorldOf
) -> LaunchedRank | None:
    """By two variables; None where they are not set, or make no sense."""
    here, all_ranks = _number(environ, rank), _number(environ, size)
    if here is None or all_ranks is None or here >= all_ranks:
        return None
    return LaunchedRank(
        rank=here,
        size=all_ranks,
        world=world(environ),
        beside=max(1, _number(environ, beside) or 1),
    )


def _in_step(environ: Mapping[str, str]) -> LaunchedRank | None:
    """A batch script has SLURM_PROCID too, and is no task of a step."""
    if "SLURM_STEP_ID" not in environ:
        return None
    return _said(environ, "SLURM_PROCID", "SLURM_NTASKS", beside="", world=_step)


def _torch_world(environ: Mapping[str, str]) -> str:
    """A script may start one torchrun a node, each in a step of its own."""
    address, port = environ.get("MASTER_ADDR", ""), environ.get("MASTER_PORT", "")
    return f"at {address}:{port}" if address and port else _step(environ)


def _mpi_world(environ: Mapping[str, str]) -> str:
    """mpirun starts its ranks on the first node without a step, those of others in one."""
    names = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")
    return "mpi " + next((environ[name] for name in names if environ.get(name)), "")


def _step(environ: Mapping[str, str]) -> str:
    return f"step {environ.get('SLURM_STEP_ID', '')}"


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else None
