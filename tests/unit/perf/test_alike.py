"""Partitions that differ in their name alone are searched once, and all listed."""

from __future__ import annotations

import numpy as np
import pytest
from decisions import cluster, decide, partition, request
from hypothesis import given, settings
from hypothesis import strategies as st

from sbtrain_perf import weighing
from sbtrain_perf.alike import Alike
from sbtrain_perf.decision import Decision
from sbtrain_perf.predict import Candidates
from sbtrain_perf.request import Objective, Partition

KINDS = (
    {"nodes": 300, "max_nodes_per_job": 300},
    {"nodes": 300, "max_nodes_per_job": 300, "price_per_node_hour": 2.0},
    {"nodes": 40, "cores_per_node": 64},
)


def several(kinds: list[int]) -> tuple[Partition, ...]:
    return tuple(partition(f"p{at}", **KINDS[kind]) for at, kind in enumerate(kinds))


class Each(Alike):
    """As if no partition were like another."""

    def searched(self, lanes: Candidates) -> Candidates:
        return lanes

    def all_of(self, rows: Candidates, values: np.ndarray, *, most: int) -> Candidates:
        return rows


def rows(decision: Decision) -> list[tuple[str, int, int, str | None]]:
    return [(r.partition, r.nodes, r.servers, r.rejected) for r in decision.rows]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(0, 2), min_size=2, max_size=20),
    st.sampled_from([None, "p0", "p3"]),
    st.sampled_from(["balanced", "time", "cost", "node-hours", "deadline"]),
)
def test_the_decision_is_that_of_searching_each(
    kinds: list[int], waits: str | None, kind: str
) -> None:
    shape = cluster(*several(kinds))
    objective = Objective(kind=kind, deadline_s=4000.0 if kind == "deadline" else None)
    asked = request(objective=objective)
    queue = {waits: 100.0} if waits else {}
    ours = decide(asked, shape, **queue)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weighing, "Alike", Each)
        each = decide(asked, shape, **queue)
    assert ours.chosen == each.chosen
    assert rows(ours) == rows(each)


def test_what_was_learnt_of_one_does_not_hold_for_its_likes() -> None:
    shape = cluster(*several([0] * 5))
    alike = Alike(shape.partitions, queue_waits={}, known={"p3"})
    lanes = Candidates(
        partition=np.arange(5),
        servers=np.zeros(5, int),
        low=np.ones(5, int),
        high=np.ones(5, int),
    )
    assert alike.searched(lanes).partition.tolist() == [0, 3]
