"""Deadlines by probability, the front of time and cost, and what the other layout would do."""

from __future__ import annotations

import pytest
from decisions import chosen_row, cluster, decide, figures, partition, request

from sbtrain_perf.errors import PlanError
from sbtrain_perf.request import GpuType, ModelShape, NodeRange, Objective

K80 = GpuType(name="K80", peak_tflops=4.113, memory_gib=12, memory_bytes_s=2.4e11)


def test_a_deadline_takes_the_cheapest_row_that_keeps_it() -> None:
    shape = cluster()
    fastest = decide(request(), shape).chosen
    cheapest = decide(request(objective=Objective(kind="cost")), shape).chosen
    assert fastest is not None
    assert cheapest is not None
    limit = 2 * (fastest.prediction.total_high_s or 0.0)
    decision = decide(request(objective=Objective(kind="deadline", deadline_s=limit)), shape)
    plan = decision.chosen
    assert plan is not None
    assert cheapest.prediction.cost < plan.prediction.cost < fastest.prediction.cost
    chosen = chosen_row(decision)
    assert chosen.deadline_odds is not None
    assert 0.9 <= chosen.deadline_odds < 0.999
    assert int(100 * chosen.deadline_odds) in figures(plan.reason)  # never more than it is
    cheaper = [
        r for r in decision.rows if r.prediction and r.prediction.cost < plan.prediction.cost
    ]
    assert cheaper
    assert all((r.deadline_odds or 0.0) < 0.9 for r in cheaper)
    assert not any("no plan keeps" in note for note in decision.notes)


def test_the_probability_of_a_deadline_is_the_users_to_choose() -> None:
    shape = cluster()
    fastest = decide(request(), shape).chosen
    assert fastest is not None
    limit = 2 * (fastest.prediction.total_high_s or 0.0)
    odds = []
    for sure in (0.5, 0.9, 0.99):
        objective = Objective(kind="deadline", deadline_s=limit, sure=sure)
        row = chosen_row(decide(request(objective=objective), shape))
        assert row.deadline_odds is not None
        assert row.deadline_odds >= sure - 1e-6
        odds.append(row.deadline_odds)
    assert odds[0] < odds[1] < odds[2]
    with pytest.raises(PlanError, match=r"probability of 0\.4"):
        decide(
            request(objective=Objective(kind="deadline", deadline_s=9.0, sure=0.4)), cluster()
        )


def test_a_deadline_that_none_is_sure_to_keep_takes_the_likeliest() -> None:
    shape = cluster()
    fastest = decide(request(), shape).chosen
    assert fastest is not None
    limit = fastest.prediction.total_s
    decision = decide(request(objective=Objective(kind="deadline", deadline_s=limit)), shape)
    chosen = chosen_row(decision)
    assert chosen.deadline_odds == pytest.approx(0.5, abs=0.02)
    assert chosen.deadline_odds == max(r.deadline_odds or 0.0 for r in decision.rows)
    assert any("no plan keeps" in note for note in decision.notes)
    assert decision.chosen is not None
    assert 50.0 in figures(decision.chosen.reason)


def test_the_front_of_time_and_cost_is_marked() -> None:
    shape = cluster(
        partition("cheap", cores_per_node=4, price_per_node_hour=0.2), partition("dear")
    )
    rows = [r for r in decide(request(), shape).rows if r.prediction]
    points = [(r.prediction.total_s, r.prediction.cost, r.pareto) for r in rows if r.prediction]
    assert 3 < sum(pareto for *_, pareto in points) < len(rows)
    for seconds, cost, pareto in points:
        better = [
            p for p in points if p[0] <= seconds and p[1] <= cost and p[:2] != (seconds, cost)
        ]
        assert pareto is not bool(better)


def test_a_deadline_that_nothing_keeps_names_the_fastest() -> None:
    decision = decide(request(objective=Objective(kind="deadline", deadline_s=20.0)), cluster())
    assert decision.chosen is None
    assert 20.0 in figures(decision.refusal)
    with pytest.raises(PlanError, match="deadline"):
        decide(request(objective=Objective(kind="deadline")), cluster())


def test_saturated_servers_are_named() -> None:
    shape = cluster(partition(gpu=K80, gpus_per_node=8))
    asked = request(model=ModelShape(parameters=5_000_000, tensors=200), batch_per_worker=8)
    decision = decide(asked, shape)
    full = next(r for r in decision.rows if r.servers == 1 and r.nodes == 8)
    assert "saturate" in (full.rejected or "")


def test_saturated_servers_are_why_all_reduce_is_faster() -> None:
    shape = cluster(partition(gpu=K80, gpus_per_node=8, network_bytes_s=5e10))
    asked = request(model=ModelShape(parameters=5_000_000, tensors=200), batch_per_worker=8)
    plan = decide(asked, shape).chosen
    assert plan is not None
    assert plan.layout == "allreduce"
    assert "saturated" in plan.reason


def test_a_slow_network_is_why_servers_are_faster() -> None:
    shape = cluster(partition(network_bytes_s=2e8))
    time = Objective(kind="time")
    plan = decide(request(steps=1000, epochs=None, objective=time), shape).chosen
    assert plan is not None
    assert plan.layout == "ps"
    asked = request(steps=1000, epochs=None, nodes=NodeRange(low=4, high=8))
    plan = decide(asked, shape).chosen
    assert plan is not None
    assert 4.0 in figures(plan.reason)


def test_where_nothing_is_saturated_nothing_is_said() -> None:
    shape = cluster(partition(cores_per_node=1, network_bytes_s=5e10))
    plan = decide(request(), shape).chosen
    assert plan is not None
    assert plan.layout == "allreduce"
    assert "saturated" not in plan.reason
