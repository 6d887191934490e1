"""Which framework's convention the ranks of a script follow to find each other, by what its
code does: comments, messages and strings do not count.

What brings up the world of ranks counts, not what else is imported. Of several, Horovod comes
first, which starts its own world beside the one framework that computes; then PyTorch, JAX
and TensorFlow; MPI last, which many use for something else, but first where the others get
their ranks from it. Modules beside a Python script count as far as the script itself imports
them. What is not recognised is plain, and never given servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sbtrain.options.script import Script
from sbtrain.scripts.worlds import WorldStart
from sbtrain_perf.request import Framework

FRAMEWORKS: tuple[Framework, ...] = (
    "horovod",
    "torch",
    "jax",
    "tensorflow",
    "mpi",
    "plain",
)
CONVENTIONS: Mapping[Framework, str] = {
    "horovod": "Horovod's world",
    "torch": "PyTorch's env:// convention",
    "jax": "JAX's coordinator",
    "tensorflow": "TensorFlow's TF_CONFIG",
    "mpi": "MPI's world",
    "plain": "no framework's convention",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Follows:
    """why: in words, of the script. alone: the script starts the processes of a node itself,
    and is to be started once on each."""

    framework: Framework = "plain"
    why: str = "nothing is known of it"
    alone: bool = False


UNKNOWN = Follows()


def framework_of(script: Script, *, by_user: Framework | None = None) -> Follows:
    """Never fails: what cannot be read as Python is plain, and is said so. by_user: the one
    that he names."""
    if by_user is not None:
        own = framework_of(script)
        why = "as --train-layout says"
        if own.framework not in (by_user, "plain"):
            why += f", though it calls {own.why}: {CONVENTIONS[own.framework]}"
        return Follows(framework=by_user, why=why, alone=own.alone)
    if not script.is_python:
        return Follows(framework="plain", why="it is no Python")
    from sbtrain.scripts.uses import script_uses

    try:
        uses = script_uses(script)
    except ValueError as error:
        return Follows(framework="plain", why=f"it cannot be read as Python ({error})")
    first = ("horovod", "mpi") if uses.ranked_by_mpi else ()
    worlds = {one.framework: one for one in uses.worlds}
    found = next((worlds[name] for name in (*first, *FRAMEWORKS) if name in worlds), None)
    if found is None:
        return Follows(framework="plain", why="no call in it is known to bring up a world")
    return Follows(framework=found.framework, why=_shown(found), alone=uses.spawns)


def _shown(world: WorldStart) -> str:
    where = f" of {world.file}" if world.file else ""
    return f"{world.call} on line {world.line}{where}"
