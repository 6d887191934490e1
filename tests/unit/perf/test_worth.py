"""What time may cost, and who may be pushed aside, where the user does not say."""

from __future__ import annotations

import dataclasses

import pytest
from decisions import chosen_row, cluster, decide, partition, request

from sbtrain_perf.decision import Decision
from sbtrain_perf.explain import plan_table
from sbtrain_perf.request import ClusterShape, NodeRange, Objective, Partition, Request

HERE = NodeRange(low=4, high=4)
URGENT = partition("urgent", cores_per_node=64, preempts_others=True)


def asked(**changes: object) -> Request:
    return dataclasses.replace(request(nodes=HERE, layout="allreduce"), **changes)


def took_s() -> float:
    plan = decide(asked(), cluster()).chosen
    assert plan is not None
    return plan.prediction.total_s


def two(
    cheap: float, dear: float, *, slower: float, **changes: object
) -> tuple[Decision, ClusterShape]:
    """The same nodes at two prices; those of `cheap` end `slower` times as late."""
    shape = cluster(
        partition("dear", price_per_node_hour=dear),
        partition("cheap", price_per_node_hour=cheap),
    )
    return decide(asked(**changes), shape, cheap=(slower - 1.0) * took_s()), shape


@pytest.mark.parametrize(
    ("times", "bound"),
    [(2.0, 1.4142), (4.0, 2.0), (10.0, 3.1623), (100.0, 10.0), (1.1, 1.0488)],
)
def test_a_price_buys_the_square_root_of_itself_in_time(times: float, bound: float) -> None:
    for prices in ((1.0, times), (1e-6, 1e-6 * times), (1e4, 1e4 * times)):
        assert chosen_row(two(*prices, slower=0.995 * bound)[0]).partition == "cheap"
        assert chosen_row(two(*prices, slower=1.005 * bound)[0]).partition == "dear"


def test_ten_times_the_price_for_five_per_cent_is_not_taken_and_said_so() -> None:
    decision, shape = two(1.0, 10.0, slower=1.0 / 0.95)
    assert chosen_row(decision).partition == "cheap"
    (dear,) = [row for row in decision.rows if row.partition == "dear"]
    assert dear.rejected == "5.0 % faster, at 10 x the cost: not worth it"
    assert (
        "4 nodes of dear with all-reduce would be 5.0 % faster, at 10 x the cost"
        in " ".join(plan_table(decision, shape).split())
    )


@pytest.mark.parametrize("kind", ["time", "deadline"])
def test_for_who_asks_for_time_or_a_deadline_time_wins(kind: str) -> None:
    deadline_s = 8.0 * took_s() if kind == "deadline" else None
    objective = Objective(kind=kind, deadline_s=deadline_s)
    late = 20.0 if kind == "deadline" else 1.05
    assert chosen_row(two(1.0, 10.0, slower=late, objective=objective)[0]).partition == "dear"


def test_a_dear_partition_that_is_named_is_taken() -> None:
    assert chosen_row(two(1.0, 10.0, slower=1.0, partition="dear")[0]).partition == "dear"
    both = two(1.0, 10.0, slower=1.0, partition="dear,cheap")[0]
    assert chosen_row(both).partition == "cheap"


def test_free_nodes_count_as_a_tenth_of_the_least_price() -> None:
    """Neither are they waited for without end, nor given up for a moment."""
    bound = 10.0**0.5
    free, _ = two(0.0, 1.0, slower=0.99 * bound)
    assert chosen_row(free).partition == "cheap"
    assert any("it counts as at 10% of the least price" in note for note in free.notes)
    (dear,) = [row for row in free.rows if row.partition == "dear"]
    assert (dear.rejected or "").endswith(", not for free: not worth it")
    waited, _ = two(0.0, 1.0, slower=1.01 * bound)
    assert chosen_row(waited).partition == "dear"
    (cheap,) = [row for row in waited.rows if row.partition == "cheap"]
    assert cheap.rejected == "3.2 x as long, for nothing"


@pytest.mark.parametrize("price", [0.0, 1.0, 50.0])
def test_of_equal_prices_the_faster_is_taken(price: float) -> None:
    """All free, all at one price, all dear."""
    decision, _ = two(price, price, slower=1.05)
    assert chosen_row(decision).partition == "dear"
    (other,) = [row for row in decision.rows if row.partition == "cheap"]
    assert other.rejected == "1.05 x as long"


def test_one_partition_is_taken_at_any_price() -> None:
    for price in (0.0, 1e6):
        only = partition("only", price_per_node_hour=price)
        assert chosen_row(decide(asked(), cluster(only))).partition == "only"


def test_more_nodes_are_bought_as_dear_partitions_are() -> None:
    """Node-hours are the price where there is none: of each pair of rows the rule holds."""
    shape = cluster(partition(nodes=400, max_nodes_per_job=400, price_per_node_hour=0.0))
    for epochs in (1, 10):
        decision = decide(request(epochs=epochs, layout="allreduce"), shape)
        best = chosen_row(decision).prediction
        assert best is not None
        others = [row for row in decision.rows if row.prediction and not row.chosen]
        assert min(row.nodes for row in others) < chosen_row(decision).nodes
        for row in others:
            assert row.prediction is not None
            gain = best.total_s / row.prediction.total_s
            assert row.prediction.node_hours >= gain**2 * best.node_hours * (1 - 1e-9)
        assert any(
            "at " in (r.rejected or "") and "not worth it" in (r.rejected or "") for r in others
        )


def test_of_very_many_rows_a_faster_one_is_shown_with_its_price() -> None:
    big = cluster(*(partition(f"p{i}", nodes=5000, max_nodes_per_job=5000) for i in range(20)))
    decision = decide(request(epochs=100), big)
    assert decision.considered > 100_000
    assert decision.chosen is not None
    assert "% faster, at" in decision.chosen.reason


def kinds(*extra: Partition, **changes: object) -> Decision:
    return decide(asked(**changes), cluster(partition("gentle"), URGENT, *extra))


@pytest.mark.parametrize("kind", ["balanced", "cost", "node-hours"])
def test_nobody_is_pushed_aside_unasked(kind: str) -> None:
    """Whatever it would gain, and even for nothing."""
    objective = Objective(kind=kind)
    for price in (0.0, 1.0):
        urgent = dataclasses.replace(URGENT, price_per_node_hour=price)
        shape = cluster(partition("gentle"), urgent)
        decision = decide(asked(objective=objective), shape, gentle=1e6)
        assert chosen_row(decision).partition == "gentle"
        (row,) = [row for row in decision.rows if row.partition == "urgent"]
        assert "only for those who name it (--partition)" in (row.rejected or "")
        assert not decision.risks
    named = kinds(objective=objective, partition="urgent")
    assert chosen_row(named).partition == "urgent"
    assert not named.risks


def test_who_asks_for_time_pushes_aside_and_is_told() -> None:
    decision = kinds(objective=Objective(kind="time"))
    assert chosen_row(decision).partition == "urgent"
    assert decision.risks == ("urgent pushes running jobs of others aside",)


@pytest.mark.parametrize(("factor", "where"), [(20.0, "gentle"), (1.0, "urgent"), (0.05, "")])
def test_a_deadline_pushes_aside_only_where_it_must(factor: float, where: str) -> None:
    """Times what the gentle partition takes: it keeps it, the urgent one alone, none."""
    fast = dataclasses.replace(URGENT, cores_per_node=1000, price_per_node_hour=0.01)
    objective = Objective(kind="deadline", deadline_s=factor * took_s(), sure=0.6)
    decision = decide(asked(objective=objective), cluster(partition("gentle"), fast))
    assert (decision.chosen.partition if decision.chosen else "") == where
    told = "urgent pushes running jobs of others aside" in decision.risks
    assert told is (where == "urgent")


def test_where_all_push_aside_or_nothing_else_fits() -> None:
    only = decide(asked(), cluster(URGENT))
    assert chosen_row(only).partition == "urgent"
    assert only.risks == ("urgent pushes running jobs of others aside",)
    small = partition("gentle", nodes=2, max_nodes_per_job=2)
    refused = decide(asked(), cluster(small, URGENT))
    assert refused.chosen is None
    assert (
        "urgent: pushes running jobs of others aside: only for those who name"
        in refused.refusal
    )
    short = partition("gentle", max_time_s=20.0)
    never = decide(asked(resumable=False), cluster(short, URGENT))
    assert never.chosen is None
    assert "not weighed: urgent, which pushes running jobs of others aside" in never.refusal


def test_a_run_that_does_not_resume_is_kept_off_nodes_that_are_taken_away() -> None:
    """Unless they are named, or nothing else fits."""
    spot = partition("spot", preemptible=True, price_per_node_hour=0.1)
    both = cluster(partition("gentle"), spot)
    assert chosen_row(decide(asked(), both)).partition == "spot"
    once = asked(resumable=False)
    decision = decide(once, both)
    assert chosen_row(decision).partition == "gentle"
    (row,) = [row for row in decision.rows if row.partition == "spot"]
    assert "may preempt, which ends a run that does not resume" in (row.rejected or "")
    named = decide(dataclasses.replace(once, partition="spot"), both)
    cheapest = decide(dataclasses.replace(once, objective=Objective(kind="cost")), both)
    small = cluster(partition("gentle", nodes=2, max_nodes_per_job=2), spot, URGENT)
    alone = decide(once, small)
    for found in (named, cheapest, alone):
        assert chosen_row(found).partition == "spot"
        assert any("a preempted run ends there" in risk for risk in found.risks)
