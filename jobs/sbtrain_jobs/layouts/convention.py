"""The seam between the launcher and a framework: by what convention the ranks of a world find
each other, and what that asks of whoever starts them.

A framework is one module of `conventions`, named as in `sbtrain_perf.request.Framework`, with
a CONVENTION of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from sbtrain_perf.request import Framework, Plan, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A trainer's place in the world of its plan.

    addresses[r] is host:port of plan.roles[r]. gpus: how many the trainer sees. accelerators:
    its node may have other devices than CPUs, or the user says on what it computes.
    """

    plan: Plan
    rank: int
    addresses: tuple[str, ...]
    gpus: int = 0
    accelerators: bool = True

    @property
    def role(self) -> Role:
        return self.plan.roles[self.rank]


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """What a framework needs of the launcher.

    variables: what a trainer's environment gains, in parts. by_mpi: the ranks meet through
    MPI, so each is a task that srun starts. all_gpus: a rank sees all GPUs of its node and
    takes one by its local rank; otherwise it takes all it sees, and sees its share.
    """

    variables: tuple[Callable[[Place], dict[str, str]], ...]
    by_mpi: bool = False
    all_gpus: bool = False

    def environment(self, place: Place) -> dict[str, str]:
        return {name: value for part in self.variables for name, value in part(place).items()}


def convention_of(framework: Framework) -> Convention:
    found: Convention = import_module(f"{__package__}.conventions.{framework}").CONVENTION
    return found
