"""What one trainer's environment gains: its place in the run, the world as its framework reads
it, and its share of the node's GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from sbtrain_jobs.layouts.convention import Place, convention_of
from sbtrain_jobs.layouts.environment import ON_CPUS, ROLE, RunContext, run_environment
from sbtrain_jobs.layouts.ranks import local_workers
from sbtrain_perf.request import Plan
from sbtrain_perf.values import dataclass

# HIP reads those of the first line, within what ROCR leaves: one of the two is shared out.
_DEVICES = (("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"), ("ROCR_VISIBLE_DEVICES",))
_GPU_PER_TASK = ("SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU", "SLURM_TRES_PER_TASK")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleContext(RunContext):
    """What one trainer's environment is made of; addresses[r] is host:port of plan.roles[r].
    accelerators: there may be other devices than CPUs on the node."""

    rank: int
    addresses: tuple[str, ...]
    accelerators: bool = True


def role_environment(
    plan: Plan, context: RoleContext, environ: Mapping[str, str]
) -> dict[str, str]:
    """What a trainer's environment gains. environ: of the node's step."""
    role = plan.roles[context.rank]
    convention = convention_of(plan.framework)
    devices = visible_devices(plan, context.rank, environ, shared=convention.all_gpus)
    place = Place(
        plan=plan,
        rank=context.rank,
        addresses=context.addresses,
        gpus=len(_listed(next(iter(devices.values()), ""))),
        accelerators=context.accelerators or ON_CPUS in environ,
    )
    return {
        **run_environment(plan, context),
        ROLE: role.name,
        "SBTRAIN_ROLE_INDEX": str(role.index),
        "SBTRAIN_RANK": str(context.rank),
        "SBTRAIN_WORLD_SIZE": str(plan.workers),
        "SBTRAIN_NODE": str(role.node),
        "PYTHONUNBUFFERED": "1",
        **convention.environment(place),
        **devices,
    }


def visible_devices(
    plan: Plan, rank: int, environ: Mapping[str, str], *, shared: bool
) -> dict[str, str]:
    """The variables by which a trainer sees GPUs, as far as the node's step has them.

    Servers and their coordinator see none. Each worker sees its share, or, where they are
    shared and nobody asked for a GPU a task, all.
    """
    present = [[name for name in names if name in environ] for names in _DEVICES]
    names = next(filter(None, present), [])
    role = plan.roles[rank]
    if role.name != "worker":
        return dict.fromkeys(names, "-1")
    workers = local_workers(plan, role.node)
    if shared and not any(environ.get(name) for name in _GPU_PER_TASK):
        return {name: environ[name] for name in names}
    place, of = workers.index(role), len(workers)
    return {name: _share(environ[name], place, of) for name in names}


def _share(visible: str, place: int, of: int) -> str:
    devices = _listed(visible)
    each = len(devices) // of
    return ",".join(devices[place * each : (place + 1) * each]) if each else visible


def _listed(visible: str) -> list[str]:
    return [device for device in visible.split(",") if device]
