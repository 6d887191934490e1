"""Which CPUs a trainer runs on, and how many threads it starts."""

from __future__ import annotations

import os
from collections.abc import Mapping

import pytest

from plans import example_plan
from sbtrain_jobs.node_agent.cpu_share import (
    allowed_cores,
    kept_on,
    own_cpus,
    thread_variables,
)
from sbtrain_jobs.process import run_command
from sbtrain_perf.request import Plan, Role

CORES = [[0, 4], [1, 5], [2, 6], [3, 7]]  # each of two hardware threads
EIGHT = {"SLURM_CPUS_ON_NODE": "8"}


def two_on_a_node() -> Plan:
    roles = tuple(Role(name="worker", index=i, node=i // 2) for i in range(4))
    return example_plan(roles=roles, workers=4)


@pytest.mark.parametrize(
    ("rank", "environ", "cpus"),
    [
        (0, EIGHT, {0, 4, 1, 5}),
        (3, EIGHT, {2, 6, 3, 7}),
        (1, {**EIGHT, "SLURM_CPUS_PER_TASK": "2"}, {1, 5}),
        (1, {**EIGHT, "SLURM_CPUS_PER_TASK": "6"}, {2, 6, 3, 7}),  # more than there are
        (1, {"SLURM_CPUS_ON_NODE": "4"}, set()),  # the other four may be another job's
        (1, {**EIGHT, "OMP_PLACES": "cores"}, set()),  # the user has bound his threads
        (1, {}, set()),
    ],
)
def test_ranks_share_the_cores_of_their_node(
    rank: int, environ: Mapping[str, str], cpus: set[int]
) -> None:
    assert own_cpus(two_on_a_node(), rank, environ, cores=CORES) == cpus


def test_a_rank_alone_on_its_node_and_servers_are_left_where_they_are() -> None:
    assert own_cpus(example_plan(), 0, EIGHT, cores=CORES) == frozenset()
    roles = (
        Role(name="ps", index=0, node=0),
        *(Role(name="worker", index=i, node=0) for i in range(2)),
    )
    plan = example_plan(nodes=1, roles=roles)
    assert own_cpus(plan, 1, EIGHT, cores=CORES) == frozenset()
    assert thread_variables(plan, 0, EIGHT) == {}


@pytest.mark.parametrize(
    ("environ", "threads"),
    [
        (EIGHT, "4"),
        ({"SLURM_CPUS_ON_NODE": "1"}, "1"),
        ({**EIGHT, "SLURM_CPUS_PER_TASK": "3"}, "3"),
        ({**EIGHT, "OMP_NUM_THREADS": "5"}, None),  # the user's own
        ({}, None),
    ],
)
def test_threads_are_as_many_as_a_rank_has_cpus(
    environ: Mapping[str, str], threads: str | None
) -> None:
    assert thread_variables(two_on_a_node(), 3, environ).get("OMP_NUM_THREADS") == threads


def test_a_rank_alone_starts_as_many_threads_as_its_library_likes() -> None:
    assert thread_variables(example_plan(), 0, EIGHT) == {}
    asked = thread_variables(example_plan(), 0, {"SLURM_CPUS_PER_TASK": "2"})
    assert asked == {"OMP_NUM_THREADS": "2"}


def test_what_is_started_runs_on_its_cpus_and_we_on_ours() -> None:
    before = os.sched_getaffinity(0)
    one = min(before)
    assert sorted(cpu for core in allowed_cores() for cpu in core) == sorted(before)
    with kept_on(frozenset({one})):
        seen = run_command(["taskset", "-cp", str(os.getpid())], timeout_s=30).stdout
    assert seen.rstrip().endswith(f": {one}")
    assert os.sched_getaffinity(0) == before
