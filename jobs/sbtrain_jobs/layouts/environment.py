"""What all that runs under sbtrain finds in its environment, and the names of all that a
trainer may find there besides."""

from __future__ import annotations

import os
from pathlib import PurePath

from sbtrain_perf.request import Plan
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
# Without it, ranks of Accelerate and Transformers stay alone on nodes of CPUs.
ON_CPUS = "ACCELERATE_USE_CPU"
ROLE = "SBTRAIN_ROLE"  # set for trainers that sbtrain has started itself
TRAINER_VARIABLES = RUN_VARIABLES | {
    RESUME_UP_TO,
    "SBTRAIN_WITNESS",  # the process that hooks take for the rank
    *(ROLE, "SBTRAIN_ROLE_INDEX", "SBTRAIN_RANK", "SBTRAIN_WORLD_SIZE", "SBTRAIN_NODE"),
    *("TF_CONFIG", "TF_GRPC_REUSE_PORT", "PYTHONUNBUFFERED", "MASTER_ADDR", "MASTER_PORT"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"),
    ON_CPUS,
    *("JAX_COORDINATOR_ADDRESS", "JAX_LOCAL_DEVICE_IDS"),
    *("HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"),
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
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
