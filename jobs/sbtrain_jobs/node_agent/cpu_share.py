"""A trainer's share of its node's CPUs where several are there: the set that it runs on, and
how many threads its libraries start."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sbtrain_jobs.layouts.ranks import local_workers, ranks_on
from sbtrain_perf.request import Plan

_CPUS = Path("/sys/devices/system/cpu")
_THREADS = "OMP_NUM_THREADS"
_PER_TASK = "SLURM_CPUS_PER_TASK"
_ON_NODE = "SLURM_CPUS_ON_NODE"
_USERS_PLACES = ("GOMP_CPU_AFFINITY", "KMP_AFFINITY", "OMP_PLACES")  # of the node's CPUs


def thread_variables(plan: Plan, rank: int, environ: Mapping[str, str]) -> dict[str, str]:
    """OMP_NUM_THREADS, unless the user has set it: CPUs a task where the job asks for that, the
    node's shared out where several workers are on it."""
    role = plan.roles[rank]
    if _THREADS in environ or role.name != "worker":
        return {}
    if per_task := _number(environ, _PER_TASK):
        return {_THREADS: str(per_task)}
    workers, cpus = len(local_workers(plan, role.node)), _number(environ, _ON_NODE)
    return {_THREADS: str(max(1, cpus // workers))} if workers > 1 and cpus else {}


def own_cpus(
    plan: Plan, rank: int, environ: Mapping[str, str], *, cores: Sequence[Sequence[int]]
) -> frozenset[int]:
    """The CPUs that a trainer is kept on; none: it is left where it is.

    Only where the agent has what the job has of the node, and no more: CPUs that another job
    may use are not shared out, nor those of a node with servers.

    Args:
        cores: the agent's CPUs by core, neighbours next to each other.
    """
    role = plan.roles[rank]
    workers = local_workers(plan, role.node)
    alone = len(workers) < 2 or len(workers) < len(ranks_on(plan, role.node))
    if alone or any(name in environ for name in _USERS_PLACES):
        return frozenset()
    cpus = [cpu for core in cores for cpu in core]
    if len(cpus) != _number(environ, _ON_NODE):
        return frozenset()
    place, of = workers.index(role), len(workers)
    if 0 < (per_task := _number(environ, _PER_TASK)) * of <= len(cpus):
        return frozenset(cpus[place * per_task : (place + 1) * per_task])
    each = len(cores) // of
    return frozenset(cpu for core in cores[place * each : (place + 1) * each] for cpu in core)


def allowed_cores() -> list[list[int]]:
    """The CPUs on which this process may run, by core, the cores of one socket together."""
    cores: dict[tuple[int, int], list[int]] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        socket, core = _told(cpu, "physical_package_id", 0), _told(cpu, "core_id", cpu)
        cores.setdefault((socket, core), []).append(cpu)
    return [cores[at] for at in sorted(cores)]


@contextlib.contextmanager
def kept_on(cpus: frozenset[int]) -> Iterator[None]:
    """What this thread starts here runs on these CPUs; on none: where it runs itself."""
    before = os.sched_getaffinity(0)
    if cpus:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        if cpus:
            os.sched_setaffinity(0, before)


def _told(cpu: int, name: str, otherwise: int) -> int:
    try:
        return int((_CPUS / f"cpu{cpu}" / "topology" / name).read_text())
    except (OSError, ValueError):
        return otherwise


def _number(environ: Mapping[str, str], name: str) -> int:
    said = environ.get(name, "")
    return int(said) if said.isdecimal() else 0
