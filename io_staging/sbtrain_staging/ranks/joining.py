"""Meeting the ranks that a launcher started, as its environment tells."""

from __future__ import annotations

from collections.abc import Mapping

from sbtrain_perf.extras import install_extras
from sbtrain_staging.errors import WorldError
from sbtrain_staging.ranks.world import LAUNCH_HINT, Solo, World, node_name

# The launcher's own word comes first; Slurm's size of the whole job comes last.
SIZE_VARIABLES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")


def launched_size(environ: Mapping[str, str]) -> tuple[int, str] | None:
    """How many ranks the launcher started, and the variable that says so."""
    for variable in SIZE_VARIABLES:
        if environ.get(variable, "").isdigit():
            return int(environ[variable]), variable
    return None


def launched_rank(environ: Mapping[str, str]) -> int:
    """The rank that the launcher gave to this process, before any MPI; 0 without one."""
    for variable in RANK_VARIABLES:
        if environ.get(variable, "").isdigit():
            return int(environ[variable])
    return 0


def join_world(environ: Mapping[str, str]) -> World:
    """Meet the other ranks that the launcher started.

    Raises:
        WorldError: MPI sees another number of ranks than the launcher started, MPI is
            missing, or two ranks share a node.
    """
    launched = launched_size(environ)
    if launched is None or launched[0] == 1:
        return Solo()
    size, variable = launched
    try:
        from sbtrain_staging.ranks.mpi import MpiWorld
    except (ImportError, RuntimeError) as error:  # the package, or the library
        why = str(error).partition("\n")[0]
        raise WorldError(
            f"{variable} says {size} ranks, but MPI cannot be loaded: {why}",
            hint=f"load the site's MPI module, or {install_extras('staging', 'mpich')}",
        ) from None
    world = MpiWorld()
    if world.size != size:
        raise WorldError(
            f"{variable} says {size} ranks, but this process sees {world.size}: "
            "the launcher and the MPI library do not belong together",
            hint=LAUNCH_HINT,
        )
    _check_one_rank_a_node(world, environ)
    return world


def _check_one_rank_a_node(world: World, environ: Mapping[str, str]) -> None:
    names = [name.decode() for name in world.exchange(node_name(environ).encode())]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise WorldError(f"several ranks on node {twice[0]}", hint=LAUNCH_HINT)
