"""What a trainer knows of its run: role, rank, data and folders, read from the environment.

The node agent sets SBTRAIN_PLAN and its sisters; where the script starts the ranks itself, the
supervisor does, and the script's own launcher says which rank a process is. Without
SBTRAIN_PLAN (plain sbatch, a laptop) the process is alone: rank 0 of 1, with the defaults that
the script gave.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.layouts.environment import RESUME_UP_TO
from sbtrain_jobs.run_folder import RunFolder
from sbtrain_jobs.signals import notice_or_default
from sbtrain_jobs.staged_data import staged_paths
from sbtrain_jobs.training.launched import checkpoints_of, launched_rank
from sbtrain_perf.codec import read_plan
from sbtrain_perf.errors import PlanError
from sbtrain_perf.request import Launch, Layout, Plan, RoleName
from sbtrain_perf.values import dataclass
from sbtrain_staging.errors import StagingError


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a script that runs alone falls back on; its data also where the plan has none."""

    steps: int = 1000
    batch_per_worker: int = 32
    data: tuple[Path, ...] = ()
    checkpoint_folder: Path
    checkpoint_interval_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerContext:
    """One trainer's place in the run; rank is the index in plan.roles, or in the world that
    the script's own launcher started."""

    alone: bool
    run_id: str
    run_folder: RunFolder | None
    attempt: int
    layout: Layout
    role: RoleName
    role_index: int
    rank: int
    world_size: int  # workers
    node: int
    node_name: str
    node_cores: int  # that this process may use
    steps: int
    batch_per_worker: int
    data: tuple[Path, ...]
    checkpoint_folder: Path
    checkpoint_interval_s: float
    stop_signal: str  # without SIG: USR1
    resume_up_to: int | None = None  # the newest checkpoint when the attempt began; 0: none
    control: str = ""  # where the supervisor listens; empty: there is none
    token: str = ""
    launch: Launch = "ranks"  # who started it
    launched_world: str = ""  # which launch of the script's that was

    @property
    def is_chief(self) -> bool:
        """Whether this process saves, evaluates and reports."""
        if self.layout == "ps":
            return self.role == "chief"
        return self.role_index == 0

    @property
    def parks(self) -> bool:
        """Whether this process only serves others: servers and workers of the ps layout."""
        return self.layout == "ps" and self.role != "chief"


def trainer_context(environ: Mapping[str, str], defaults: Defaults) -> TrainerContext:
    """The context that the node agent gave this process, or that of one alone.

    Raises:
        PlanError: SBTRAIN_PLAN is set, but the plan or another variable is missing or
            they contradict each other.
    """
    if _of_another_job(environ):
        environ = {k: v for k, v in environ.items() if not k.startswith("SBTRAIN_")}
    path = environ.get("SBTRAIN_PLAN", "")
    if not path:
        return _alone(environ, defaults)
    plan = read_plan(path)
    if plan.launch == "script":
        return _launched(plan, environ, defaults)
    rank = _number(environ, "SBTRAIN_RANK")
    if not 0 <= rank < len(plan.roles):
        raise PlanError(
            f"SBTRAIN_RANK={rank}, but the plan has {len(plan.roles)} processes", hint=_HINT
        )
    role = plan.roles[rank]
    said = (_text(environ, "SBTRAIN_ROLE"), _number(environ, "SBTRAIN_ROLE_INDEX"))
    if said != (role.name, role.index):
        raise PlanError(
            f"this process was started as {said[0]} {said[1]}, but rank {rank} of the plan "
            f"is {role.name} {role.index}",
            hint=_HINT,
        )
    beside = sum(1 for other in plan.roles if other.node == role.node)
    return TrainerContext(
        alone=False,
        run_id=plan.run_id,
        run_folder=RunFolder.of(plan),
        attempt=_number(environ, "SBTRAIN_ATTEMPT"),
        layout=plan.layout,
        role=role.name,
        role_index=role.index,
        rank=rank,
        world_size=plan.workers,
        node=role.node,
        node_name=_node_name(environ),
        node_cores=max(1, min(plan.cores_per_node, _cores()) // beside),
        steps=plan.steps,
        batch_per_worker=plan.batch_per_worker,
        data=_paths(environ.get("SBTRAIN_DATA", ""))
        or tuple(map(Path, plan.data.paths))
        or defaults.data,
        checkpoint_folder=Path(plan.checkpoint_dir),
        checkpoint_interval_s=plan.checkpoint_interval_s,
        stop_signal=plan.preemption_signal,
        resume_up_to=_number(environ, RESUME_UP_TO) if RESUME_UP_TO in environ else None,
        control=environ.get("SBTRAIN_CONTROL", ""),
        token=environ.get("SBTRAIN_TOKEN", ""),
    )


def _launched(plan: Plan, environ: Mapping[str, str], defaults: Defaults) -> TrainerContext:
    """Of a process that the script started, by whatever launcher."""
    place = launched_rank(environ)
    name, node = _node_name(environ), environ.get("SLURM_NODEID", "")
    attempt = _number(environ, "SBTRAIN_ATTEMPT")
    try:
        folder = RunFolder.of(plan).attempt(attempt)
        data = tuple(map(Path, staged_paths(plan, folder, node=0, node_name=name)))
    except (LaunchError, StagingError):  # it has been told to use what the first node has
        data = _paths(environ.get("SBTRAIN_DATA", ""))
    return TrainerContext(
        alone=False,
        run_id=plan.run_id,
        run_folder=RunFolder.of(plan),
        attempt=attempt,
        layout="allreduce",
        role="worker",
        role_index=place.rank,
        rank=place.rank,
        world_size=place.size,
        node=int(node) if node.isdecimal() else 0,
        node_name=name,
        node_cores=max(1, _cores() // place.beside),
        steps=plan.steps,
        batch_per_worker=plan.batch_per_worker,
        data=data or defaults.data,
        checkpoint_folder=checkpoints_of(Path(plan.checkpoint_dir), _program()),
        checkpoint_interval_s=plan.checkpoint_interval_s,
        stop_signal=notice_or_default(plan.preemption_signal),
        control=environ.get("SBTRAIN_CONTROL", ""),
        token=environ.get("SBTRAIN_TOKEN", ""),
        launch="script",
        launched_world=place.world,
    )


def _of_another_job(environ: Mapping[str, str]) -> bool:
    """sbatch hands the environment of a trainer that submits a job on to that job."""
    of_run, own = environ.get("SBTRAIN_JOB_ID", ""), environ.get("SLURM_JOB_ID", "")
    return bool(of_run and own) and of_run != own


_HINT = "start the script with sbtrain, or unset SBTRAIN_PLAN to run it alone"


def _alone(environ: Mapping[str, str], defaults: Defaults) -> TrainerContext:
    return TrainerContext(
        alone=True,
        run_id=f"job-{environ['SLURM_JOB_ID']}" if "SLURM_JOB_ID" in environ else "alone",
        run_folder=None,
        attempt=1,
        layout="allreduce",
        role="worker",
        role_index=0,
        rank=0,
        world_size=1,
        node=0,
        node_name=_node_name(environ),
        node_cores=_cores(),
        steps=defaults.steps,
        batch_per_worker=defaults.batch_per_worker,
        data=_paths(environ.get("SBTRAIN_DATA", "")) or defaults.data,
        checkpoint_folder=defaults.checkpoint_folder,
        checkpoint_interval_s=defaults.checkpoint_interval_s,
        stop_signal="USR1",
    )


def _program() -> str:
    """The script's name, fit for a folder."""
    return re.sub(r"[^\w.-]", "-", Path(sys.argv[0]).stem) or "program"


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(Path(part) for part in text.split(os.pathsep) if part)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _node_name(environ: Mapping[str, str]) -> str:
    return environ.get("SLURMD_NODENAME") or socket.gethostname()


def _text(environ: Mapping[str, str], name: str) -> str:
    try:
        return environ[name]
    except KeyError:
        raise PlanError(f"SBTRAIN_PLAN is set, but {name} is not", hint=_HINT) from None


def _number(environ: Mapping[str, str], name: str) -> int:
    text = _text(environ, name)
    try:
        return int(text)
    except ValueError:
        raise PlanError(f"{name}={text!r} is not a whole number", hint=_HINT) from None
