"""The steps that the supervisor starts, as argument lists of srun, and the environment that
srun itself is started with: pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from sbtrain_perf.request import Plan

# By these srun would label, redirect or add to what goes into the job's output.
_OF_STREAMS = frozenset(
    (
        *("SLURM_LABELIO", "SLURM_UNBUFFEREDIO", "SLURM_DEBUG", "SRUN_DEBUG"),
        *("SLURM_STDINMODE", "SLURM_STDOUTMODE", "SLURM_STDERRMODE"),
        *("SRUN_INPUT", "SRUN_OUTPUT", "SRUN_ERROR"),
    )
)


def srun_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The streams of our steps are those of the job, whatever its user tells srun."""
    return {name: value for name, value in environ.items() if name not in _OF_STREAMS}


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
        "sbtrain_jobs.node_agent",
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


def _one_task_a_node(plan: Plan) -> tuple[str, ...]:
    return (
        f"--nodes={plan.nodes}",
        f"--ntasks={plan.nodes}",
        "--ntasks-per-node=1",
        "--overlap",  # a monitor's or debugger's step must not wait for ours to end
        "--cpu-bind=none",  # a trainer has many threads: all cores of the allocation
        "--export=ALL",
        "--quiet",
    )
