"""When nodes come free, reckoned from a queue."""

from __future__ import annotations

import dataclasses

import pytest

from fake_slurm_cluster import fake_partition
from sbtrain.slurm.client import QueuedJob
from sbtrain.slurm.node_kinds import names_in
from sbtrain.submission.free_nodes import FreeNodes

NOW_S = 1_000_000.0
HOUR = 3_600.0
CALM = fake_partition("calm", "c[1-4]")
SPOT = fake_partition("spot", "c[1-4],g[1-2]", preempt_mode="REQUEUE")
URGENT = fake_partition("urgent", "c[1-4],g[1-2]", tier=10)


def running(nodes: str, *, left_s: float | None = HOUR, partition: str = "calm") -> QueuedJob:
    ends_s = None if left_s is None else NOW_S + left_s
    return QueuedJob(
        partition=partition, nodes=nodes, node_count=len(names_in(nodes)), ends_s=ends_s
    )


def waiting(nodes: int, *, limit_s: int | None = 3600, reason: str = "Priority") -> QueuedJob:
    return QueuedJob(partition="calm", node_count=nodes, limit_s=limit_s, reason=reason)


def wait_s(
    *queue: QueuedJob,
    nodes: int,
    partition: str = "calm",
    limit_s: float | None = 600.0,
    unusable: str = "",
    with_all: tuple[str, ...] = (),
) -> float | None:
    free = FreeNodes([CALM, SPOT, URGENT], queue, unusable=unusable, now_s=NOW_S)
    among = names_in("c[1-4]") - names_in(unusable)
    return free.wait_s(partition, nodes, among=among, limit_s=limit_s, with_all=with_all)


def test_free_nodes_are_had_at_once() -> None:
    assert wait_s(nodes=4) == 0
    assert wait_s(running("c1"), nodes=3) == 0
    assert wait_s(running("c1", left_s=-5), nodes=4) == 0  # it is completing


def test_running_jobs_hold_their_nodes_to_their_limits() -> None:
    queue = (running("c1", left_s=HOUR), running("c[2-3]", left_s=2 * HOUR))
    assert wait_s(*queue, nodes=2) == HOUR
    assert wait_s(*queue, nodes=3) == 2 * HOUR
    assert wait_s(*queue, running("c1", left_s=3 * HOUR), nodes=4) == 3 * HOUR
    assert wait_s(running("c1", left_s=None), nodes=4) is None


def test_who_waits_already_goes_first() -> None:
    queue = (running("c[1-4]"), waiting(4, limit_s=7200))
    assert wait_s(*queue, nodes=1) == 3 * HOUR
    uneven = (running("c[1-2]", left_s=600), running("c[3-4]"), waiting(4))
    assert wait_s(*uneven, nodes=2, limit_s=3000) == 600  # until the last of them are free
    assert wait_s(*uneven, nodes=2, limit_s=3001) == 2 * HOUR
    assert wait_s(*queue, waiting(2, limit_s=None), nodes=2) == 3 * HOUR
    assert wait_s(*queue, waiting(2, limit_s=None), nodes=3) is None
    higher = dataclasses.replace(waiting(4, limit_s=60), priority=9)
    assert wait_s(*queue, higher, nodes=1) == 3 * HOUR + 60
    tasks = dataclasses.replace(waiting(1, limit_s=60), tasks=4)
    assert wait_s(running("c[1-4]"), tasks, nodes=1) == HOUR + 60


def test_a_short_job_goes_before_one_that_waits_for_more() -> None:
    queue = (running("c[1-2]"), waiting(4))
    assert wait_s(*queue, nodes=2, limit_s=HOUR) == 0
    assert wait_s(*queue, nodes=2, limit_s=HOUR + 60) == 2 * HOUR
    assert wait_s(*queue, nodes=2, limit_s=None) == 2 * HOUR
    assert wait_s(*queue, nodes=3, limit_s=60) == 2 * HOUR


@pytest.mark.parametrize("reason", ["Dependency", "JobHeldUser", "BeginTime", "QOSMaxNodes"])
def test_who_does_not_wait_for_nodes_is_in_nobodys_way(reason: str) -> None:
    assert wait_s(waiting(4, limit_s=None, reason=reason), nodes=4, limit_s=None) == 0


def test_jobs_that_may_be_pushed_aside_make_way_for_a_higher_tier() -> None:
    spot = running("c[1-4]", partition="spot")
    assert wait_s(spot, nodes=4, partition="urgent") == 0
    assert wait_s(spot, nodes=1, partition="calm") == HOUR
    assert wait_s(running("c[1-4]"), nodes=1, partition="urgent") == HOUR


def test_a_lower_tier_is_in_nobodys_way() -> None:
    queue = (running("c[1-2]"), waiting(4, limit_s=None))
    assert wait_s(*queue, nodes=2, partition="urgent", limit_s=None) == 0
    assert wait_s(*queue, nodes=2, partition="calm", limit_s=None) is None


def test_nodes_that_run_nothing_are_not_waited_for() -> None:
    assert wait_s(nodes=3, unusable="c4") == 0
    assert wait_s(nodes=4, unusable="c4") is None


def test_nodes_that_the_job_must_have() -> None:
    assert wait_s(running("c1"), nodes=2, with_all=("c1",)) == HOUR
    assert wait_s(running("c1"), nodes=2, with_all=("c2", "c3")) == 0


def test_how_many_could_start_now() -> None:
    free = FreeNodes([CALM], [running("c1"), waiting(4)], now_s=NOW_S)
    among = names_in("c[1-4]")
    assert free.open_now("calm", among=among, limit_s=HOUR) == 3
    assert free.open_now("calm", among=among, limit_s=2 * HOUR) == 0
    assert free.open_now("calm", among=names_in("c[1-2]"), limit_s=HOUR) == 1


def test_what_slurm_says_of_a_waiting_job_may_contradict_what_is_known_of_nodes() -> None:
    def doubtful(reason: str, nodes: int) -> bool:
        queue = [running("c1"), waiting(nodes, reason=reason)]
        return FreeNodes([CALM], queue, now_s=NOW_S).doubtful

    assert doubtful("Resources", 3)  # three seem to be free
    assert not doubtful("Resources", 4)
    assert doubtful("ReqNodeNotAvail", 3)
    assert doubtful("Nodes_required_for_job_are_DOWN", 3)
    assert not doubtful("Priority", 3)


def test_jobs_of_partitions_that_are_not_known_do_not_matter() -> None:
    strange = dataclasses.replace(waiting(4, limit_s=None), partition="gone")
    assert wait_s(strange, running("x[1-3]", partition="gone"), nodes=4, limit_s=None) == 0
    several = dataclasses.replace(waiting(4, limit_s=None), partition="gone,calm")
    assert wait_s(several, nodes=1, limit_s=None) is None
