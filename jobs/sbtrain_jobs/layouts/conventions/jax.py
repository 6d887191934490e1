"""JAX's `jax.distributed.initialize()` without arguments: number and size of the world are
Slurm's, which every trainer has; the coordinator's address is given, because JAX would make it
of a node's name, which need not resolve, and of a port that need not be free."""

from __future__ import annotations

from sbtrain_jobs.layouts.convention import Convention, Place
from sbtrain_jobs.layouts.conventions import torch
from sbtrain_jobs.layouts.ranks import first_worker


def variables(place: Place) -> dict[str, str]:
    if place.role.name != "worker":
        return {}
    found = {"JAX_COORDINATOR_ADDRESS": place.addresses[first_worker(place.plan)]}
    if place.gpus:
        # Under Slurm it would take one alone, by its number on the node.
        found["JAX_LOCAL_DEVICE_IDS"] = ",".join(str(one) for one in range(place.gpus))
    return found


CONVENTION = Convention(variables=(torch.variables, variables))
