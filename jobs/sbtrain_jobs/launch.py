"""From the plan to what is started: argument lists and environments, as pure functions.

Nothing here starts a process, opens a socket or reads the environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from sbtrain_perf.request import Plan, Role

SIGNAL_WARNING_S = 60.0

# Interpreters of the system: a script that names one of them runs in sbtrain's own Python.
_SYSTEM_FOLDERS = ("/bin", "/usr/bin", "/usr/local/bin")


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleContext:
    """What one trainer's environment is made of, beside the plan.

    addresses[r] is host:port of plan.roles[r]; data are the paths on this node;
    control is host:port of the supervisor as this node reaches it.
    """

    rank: int
    attempt: int
    plan_path: str
    addresses: tuple[str, ...]
    data: tuple[str, ...]
    control: str
    token: str


def agent_command(plan: Plan, *, python: str, plan_path: str) -> tuple[str, ...]:
    """The step that starts one agent on each node."""
    return (
        "srun",
        *_one_task_a_node(plan),
        "--mpi=none",
        "--kill-on-bad-exit=0",  # the supervisor hears of every end and decides itself
        "--wait=0",
        python,
        "-P",  # no file of the submit folder shadows a module of ours
        "-m",
        "sbtrain_jobs.agent",
        plan_path,
    )


def staging_command(
    plan: Plan, *, python: str, report: str, events: str, scratch: str
) -> tuple[str, ...]:
    """The step that brings plan.data to every node: one MPI rank a node."""
    return (
        "srun",
        *_one_task_a_node(plan),
        f"--mpi={plan.mpi_plugin}",
        "--kill-on-bad-exit=1",
        python,
        "-P",
        "-m",
        "sbtrain_staging",
        "run",
        "--to",
        scratch,
        "--key",
        plan.run_id,
        "--report",
        report,
        "--events",
        events,
        *plan.data.paths,
    )


def probe_command(node: str) -> tuple[str, ...]:
    """A step that ends at once with 0 on a node that is well."""
    return (
        "srun",
        "--overlap",
        "--nodes=1",
        "--ntasks=1",
        f"--nodelist={node}",
        "--mpi=none",
        "--immediate=10",
        "true",
    )


def _one_task_a_node(plan: Plan) -> tuple[str, ...]:
    return (
        f"--nodes={plan.nodes}",
        f"--ntasks={plan.nodes}",
        "--ntasks-per-node=1",
        "--overlap",  # a monitor's or debugger's step must not wait for ours to end
        "--cpu-bind=none",  # a trainer has many threads: all cores of the allocation
        "--export=ALL",
    )


def trainer_argv(
    script: str, args: Sequence[str], *, shebang: str, python: str
) -> tuple[str, ...]:
    """How a user's script is run, whether or not it may be executed.

    Args:
        shebang: its first line when that starts with "#!", else "".
        python: sbtrain's interpreter; it runs Python scripts, except one whose shebang
            names an interpreter of the user's own, outside the system's folders.
    """
    words = shebang.removeprefix("#!").split(maxsplit=1)
    interpreter = PurePath(words[0]) if words else None
    program = interpreter
    if interpreter is not None and interpreter.name == "env" and len(words) > 1:
        program = PurePath(words[1].removeprefix("-S").split()[0])
    is_python = program is not None and program.name.startswith("python")
    if is_python or PurePath(script).suffix == ".py":
        if is_python and program is not None and program.is_absolute():
            python = python if str(program.parent) in _SYSTEM_FOLDERS else str(program)
        return (python, script, *args)
    if interpreter is None:
        return ("/bin/bash", script, *args)
    # The kernel hands all that follows the interpreter over as one argument.
    return (*(word.strip() for word in words), script, *args)


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
        "SBTRAIN_PLAN": context.plan_path,
        "SBTRAIN_RUN_ID": plan.run_id,
        "SBTRAIN_RUN_DIR": plan.run_dir,
        "SBTRAIN_ATTEMPT": str(context.attempt),
        "SBTRAIN_ROLE": role.name,
        "SBTRAIN_ROLE_INDEX": str(role.index),
        "SBTRAIN_RANK": str(context.rank),
        "SBTRAIN_WORLD_SIZE": str(plan.workers),
        "SBTRAIN_NODE": str(role.node),
        "SBTRAIN_DATA": os.pathsep.join(context.data),
        "SBTRAIN_CONTROL": context.control,
        "SBTRAIN_TOKEN": context.token,
        "SBTRAIN_SCRIPT_DIR": plan.script_dir or str(PurePath(plan.script).parent),
        "TF_CONFIG": tf_config(plan, context.rank, context.addresses),
        # The agent holds the port; without this TensorFlow refuses to share it.
        "TF_GRPC_REUSE_PORT": "true",
        "PYTHONUNBUFFERED": "1",
    }
    if role.name == "worker":
        host, _, port = context.addresses[_first_worker(plan)].rpartition(":")
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


def import_path(plan: Plan, inherited: str) -> dict[str, str]:
    """Where a copy of a Python script finds the modules that lie beside the original."""
    if not plan.script_dir:
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, (plan.script_dir, inherited)))}


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


def ranks_on(plan: Plan, node: int) -> tuple[int, ...]:
    """Ranks that the plan places on a node, in the order of Ready.ports."""
    return tuple(rank for rank, role in enumerate(plan.roles) if role.node == node)


def chief_rank(plan: Plan) -> int:
    """The rank whose output is the job's: the coordinator, or worker 0."""
    for rank, role in enumerate(plan.roles):
        if role.name == "chief":
            return rank
    return _first_worker(plan)


def role_name(role: Role) -> str:
    """For messages and log files: worker-3."""
    return f"{role.name}-{role.index}"


def warning_s(sbatch_options: Sequence[str]) -> float:
    """Seconds before the time limit at which Slurm sends the user signal: the @N of the
    last --signal among the options; sbatch's own default is 60."""
    found = SIGNAL_WARNING_S
    for place, option in enumerate(sbatch_options):
        name, equals, value = option.partition("=")
        if name != "--signal":
            continue
        if not equals and place + 1 < len(sbatch_options):
            value = sbatch_options[place + 1]
        seconds = value.rpartition("@")[2] if "@" in value else ""
        found = float(seconds) if seconds.isdecimal() else SIGNAL_WARNING_S
    return found


def requeue_id(environ: Mapping[str, str]) -> str:
    """The job to requeue: N, or Array_Task, so that an array's other tasks go on."""
    if "SLURM_ARRAY_JOB_ID" in environ:
        return f"{environ['SLURM_ARRAY_JOB_ID']}_{environ['SLURM_ARRAY_TASK_ID']}"
    return environ.get("SLURM_JOB_ID", "")


def _first_worker(plan: Plan) -> int:
    return next(
        rank
        for rank, role in enumerate(plan.roles)
        if role.name == "worker" and role.index == 0
    )


def _devices(role: Role, on_node: Sequence[Role], visible: str) -> str:
    if role.name != "worker":
        return "-1"
    devices = [device for device in visible.split(",") if device]
    workers = [r for r in on_node if r.name == "worker"]
    share, place = len(devices) // len(workers), workers.index(role)
    if len(workers) == 1 or share == 0:
        return visible
    return ",".join(devices[place * share : (place + 1) * share])
