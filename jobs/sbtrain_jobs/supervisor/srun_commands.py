"""The steps that the supervisor starts, as argument lists of srun, and the environment that
srun itself is started with: pure functions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from sbtrain_jobs.layouts.ranks import agents, by_mpi
from sbtrain_perf.request import Plan

# By these srun would label, redirect or add to what goes into the job's output.
_OF_STREAMS = frozenset(
    (
        *("SLURM_LABELIO", "SLURM_UNBUFFEREDIO", "SLURM_DEBUG", "SRUN_DEBUG"),
        *("SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_STDERRMODE"),
        *("SRUN_INPUT", "SRUN_OUTPUT", "SRUN_ERROR"),
    )
)
# By these srun would cut CPUs and GPUs to what the job asked for a task. An agent has all that
# the job has of its node, and shares it out: what a step gets that asks for nothing.
_OF_TASKS = frozenset(
    (
        *("SLURM_NTASKS_PER_GPU", "SLURM_NTASKS_PER_CORE", "SLURM_NTASKS_PER_SOCKET"),
        *("SLURM_CPUS_PER_TASK", "SRUN_CPUS_PER_TASK", "SLURM_CPUS_PER_GPU"),
        *("SLURM_GPUS", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK"),
        *("SLURM_GPU_BIND", "SLURM_GRES", "SLURM_TRES_PER_TASK", "SLURM_TRES_BIND"),
        *("SLURM_MEM_PER_GPU", "SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_THREADS_PER_CORE"),
        *("SLURM_HINT", "SLURM_EXACT", "SLURM_EXCLUSIVE", "SLURM_OVERCOMMIT"),
        *("SLURM_DISTRIBUTION", "SLURM_HOSTFILE", "SLURM_CORE_SPEC"),
    )
)
_GPUS = re.compile(r"\bgres/gpu[:=](?:([A-Za-z][^:=,]*)[:=])?\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepShape:
    """How our steps are started on this cluster, in this job.

    binds_cpus: the cluster keeps tasks on cores unless it is told not to; where it cannot, it
    says so into the job's output. gres: empty where a step has all GPUs of the job that asks
    for none. handed_on: variables of the job that srun is not to see, and trainers are.
    """

    binds_cpus: bool = True
    gres: str = ""
    handed_on: Mapping[str, str] = field(default_factory=dict)


def srun_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The streams of our steps are those of the job, whatever its user tells srun; and a node's
    task has all that the job has of the node."""
    kept_from = _OF_STREAMS | _OF_TASKS
    return {name: value for name, value in environ.items() if name not in kept_from}


def step_shape(environ: Mapping[str, str], *, binds_cpus: bool) -> StepShape:
    """environ: of the job. srun's --export takes no value with a comma or a quote."""
    kept = {name: environ[name] for name in sorted(_OF_TASKS & environ.keys())}
    plain = {name: value for name, value in kept.items() if not set(value) & set(",'\"\\")}
    return StepShape(binds_cpus=binds_cpus, gres=_gres(environ), handed_on=plain)


def _gres(environ: Mapping[str, str]) -> str:
    """Slurm gives each task of a step as many GPUs as the job asks for a task: an agent, which
    is one task, must ask for its node's, and of the type that the job names, if it does."""
    gpus = environ.get("SLURM_GPUS_PER_TASK")
    asked = _GPUS.search(f"gres/gpu:{gpus}" if gpus else environ.get("SLURM_TRES_PER_TASK", ""))
    here = environ.get("SLURM_GPUS_ON_NODE", "")
    if asked is None or not here.isdecimal():
        return ""
    return ":".join(filter(None, ("gpu", asked[1], here)))


def agent_command(
    plan: Plan, shape: StepShape, *, python: str, plan_path: str, mpi: str = "none"
) -> tuple[str, ...]:
    """The step that starts one agent on each node, or, with a plugin for MPI, one a rank."""
    each = [plan.roles[ranks[0]].node for ranks in agents(plan)] if by_mpi(plan) else ()
    per_node = max(Counter(each).values(), default=1)
    return (
        "srun",
        *_tasks(shape, nodes=plan.nodes, per_node=per_node, tasks=len(each)),
        f"--mpi={mpi}",
        "--kill-on-bad-exit=0",  # the supervisor hears of every end and decides itself
        "--wait=0",
        python,
        "-P",  # no file of the submit folder shadows a module of ours
        "-m",
        "sbtrain_jobs.node_agent",
        plan_path,
    )


def staging_command(
    plan: Plan, shape: StepShape, *, python: str, report: str, events: str, scratch: str
) -> tuple[str, ...]:
    """The step that brings plan.data to every node: one MPI rank a node."""
    return (
        "srun",
        *_tasks(shape, nodes=plan.nodes),
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
        *(("--quiet",) if plan.quiet else ()),
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


def _tasks(
    shape: StepShape, *, nodes: int, per_node: int = 1, tasks: int = 0
) -> tuple[str, ...]:
    handed_on = (f"{name}={value}" for name, value in shape.handed_on.items())
    return (
        f"--nodes={nodes}",
        f"--ntasks={tasks or nodes}",
        f"--ntasks-per-node={per_node}",
        "--distribution=block",  # tasks are numbered as the plan numbers its workers
        "--overlap",  # a monitor's or debugger's step must not wait for ours to end
        # A trainer has many threads: all cores of the allocation.
        *(("--cpu-bind=none",) if shape.binds_cpus else ()),
        *((f"--gres={shape.gres}",) if shape.gres else ()),
        f"--export={','.join(('ALL', *handed_on))}",
        "--quiet",
    )
