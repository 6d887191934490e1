"""What a trainer's environment gains: rank, world and addresses, as frameworks read them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import PurePath

from sbtrain_jobs.layouts.ranks import first_worker
from sbtrain_perf.request import Plan, Role
from sbtrain_perf.values import dataclass

# All that runs under sbtrain gains, and all that a trainer may gain: what is submitted from
# inside must not inherit it.
RUN_VARIABLES = frozenset(
    (
        *("SBTRAIN_PLAN", "SBTRAIN_RUN_ID", "SBTRAIN_RUN_DIR", "SBTRAIN_ATTEMPT"),
        *("SBTRAIN_JOB_ID", "SBTRAIN_DATA", "SBTRAIN_CHECKPOINT_DIR", "SBTRAIN_CONTROL"),
        *("SBTRAIN_TOKEN", "SBTRAIN_SCRIPT_DIR"),
    )
)
RESUME_UP_TO = "SBTRAIN_RESUME_UP_TO"
ROLE = "SBTRAIN_ROLE"  # set for trainers that sbtrain has started itself
TRAINER_VARIABLES = RUN_VARIABLES | {
    RESUME_UP_TO,
    "SBTRAIN_WITNESS",  # the process that hooks take for the rank
    *(ROLE, "SBTRAIN_ROLE_INDEX", "SBTRAIN_RANK", "SBTRAIN_WORLD_SIZE", "SBTRAIN_NODE"),
    *("TF_CONFIG", "TF_GRPC_REUSE_PORT", "PYTHONUNBUFFERED", "MASTER_ADDR", "MASTER_PORT"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES"),
}
TEMPORARY_PREFIX = "tmp-sbtrain-"  # of the folder that TMPDIR names


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What an environment gains of the run, beside the plan.

    data are the paths on this node; job_id is Slurm's number; control says where the supervisor
    listens: host:port as this node reaches it, or all that it may be reached at.
    """

    attempt: int
    job_id: str
    plan_path: str
    data: tuple[str, ...]
    control: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleContext(RunContext):
    """What one trainer's environment is made of; addresses[r] is host:port of plan.roles[r]."""

    rank: int
    addresses: tuple[str, ...]


def run_environment(plan: Plan, context: RunContext) -> dict[str, str]:
    """What all that runs under sbtrain gains: all that a script gains that starts its ranks
    itself."""
    return {
        "SBTRAIN_PLAN": context.plan_path,
        "SBTRAIN_RUN_ID": plan.run_id,
        "SBTRAIN_RUN_DIR": plan.run_dir,
        "SBTRAIN_ATTEMPT": str(context.attempt),
        "SBTRAIN_JOB_ID": context.job_id,
        "SBTRAIN_DATA": os.pathsep.join(context.data),
        "SBTRAIN_CHECKPOINT_DIR": plan.checkpoint_dir,
        "SBTRAIN_CONTROL": context.control,
        "SBTRAIN_TOKEN": context.token,
        "SBTRAIN_SCRIPT_DIR": plan.script_dir or str(PurePath(plan.script).parent),
    }


def role_environment(
    plan: Plan, context: RoleContext, *, visible_devices: str | None = None
) -> dict[str, str]:
    """What a trainer's environment gains.

    visible_devices: CUDA_VISIBLE_DEVICES of the node's step; it is shared out among the
    workers of a node, and kept from parameter servers and their coordinator.
    """
    role = plan.roles[context.rank]
    on_node = [r for r in plan.roles if r.node == role.node]
    values = {
        **run_environment(plan, context),
        ROLE: role.name,
        "SBTRAIN_ROLE_INDEX": str(role.index),
        "SBTRAIN_RANK": str(context.rank),
        "SBTRAIN_WORLD_SIZE": str(plan.workers),
        "SBTRAIN_NODE": str(role.node),
        "TF_CONFIG": tf_config(plan, context.rank, context.addresses),
        # The agent holds the port; without this TensorFlow refuses to share it.
        "TF_GRPC_REUSE_PORT": "true",
        "PYTHONUNBUFFERED": "1",
    }
    if role.name == "worker":
        host, _, port = context.addresses[first_worker(plan)].rpartition(":")
        local = [r for r in on_node if r.name == "worker"]
        values |= {
            "MASTER_ADDR": host,
            "MASTER_PORT": port,
            "RANK": str(role.index),
            "WORLD_SIZE": str(plan.workers),
            "LOCAL_RANK": str(local.index(role)),
            "LOCAL_WORLD_SIZE": str(len(local)),
        }
    if visible_devices is not None:
        values["CUDA_VISIBLE_DEVICES"] = _devices(role, on_node, visible_devices)
    return values


def tf_config(plan: Plan, rank: int, addresses: Sequence[str]) -> str:
    """TensorFlow's cluster and this process's task in it, as JSON."""
    cluster: dict[str, list[str]] = {}
    for name in ("chief", "worker", "ps"):
        members = sorted(
            (role.index, addresses[r]) for r, role in enumerate(plan.roles) if role.name == name
        )
        if members:
            cluster[name] = [address for _, address in members]
    role = plan.roles[rank]
    return json.dumps({"cluster": cluster, "task": {"type": role.name, "index": role.index}})


def _devices(role: Role, on_node: Sequence[Role], visible: str) -> str:
    if role.name != "worker":
        return "-1"
    devices = [device for device in visible.split(",") if device]
    workers = [r for r in on_node if r.name == "worker"]
    share, place = len(devices) // len(workers), workers.index(role)
    if len(workers) == 1 or share == 0:
        return visible
    return ",".join(devices[place * share : (place + 1) * share])
