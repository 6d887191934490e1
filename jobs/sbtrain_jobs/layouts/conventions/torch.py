"""torch.distributed's `env://`, which DDP, FSDP, Lightning, Accelerate, Trainer and DeepSpeed
follow: rank and world in variables, and the address of a store that rank 0 opens."""

from __future__ import annotations

from sbtrain_jobs.layouts.convention import Convention, Place
from sbtrain_jobs.layouts.environment import ON_CPUS
from sbtrain_jobs.layouts.ranks import first_worker, local_workers


def variables(place: Place) -> dict[str, str]:
    """Of workers: servers and their coordinator have no place in such a world."""
    plan, role = place.plan, place.role
    if role.name != "worker":
        return {}
    host, _, port = place.addresses[first_worker(plan)].rpartition(":")
    local = local_workers(plan, role.node)
    on_cpus = {} if place.accelerators else {ON_CPUS: "true"}
    return {
        **on_cpus,
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "RANK": str(role.index),
        "WORLD_SIZE": str(plan.workers),
        "LOCAL_RANK": str(local.index(role)),
        "LOCAL_WORLD_SIZE": str(len(local)),
        "NODE_RANK": str(role.node),
    }


CONVENTION = Convention(variables=(variables,), all_gpus=True)
