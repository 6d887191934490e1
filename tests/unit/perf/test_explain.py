"""The plan table: fits the screen, marks the choice, leaves no row without a reason."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbtrain_perf.codec import decode
from sbtrain_perf.coefficients import load_coefficients
from sbtrain_perf.decision import Decision
from sbtrain_perf.explain import plan_json, plan_table
from sbtrain_perf.planner import plan_request
from sbtrain_perf.request import (
    ClusterShape,
    DataSet,
    NodeRange,
    Objective,
    Partition,
    Plan,
    Request,
)
from sbtrain_perf.wording import amount, brief_duration, duration, ratio, size


def partition(name: str, **changes: object) -> Partition:
    plain = Partition(
        name=name,
        nodes=6,
        max_nodes_per_job=6,
        cores_per_node=16,
        memory_gib_per_node=64,
        price_per_node_hour=1.25,
    )
    return dataclasses.replace(plain, **changes)


SHAPE = ClusterShape(
    name="test",
    source="/etc/test.toml",
    partitions=(
        partition("standard"),
        partition("spot", price_per_node_hour=0.5, preemptible=True),
        partition("a-partition-with-a-long-name", nodes=1, max_nodes_per_job=1),
    ),
    shared_bytes_s=2e9,
    shared_client_bytes_s=1e9,
    currency="EUR",
)


def decide(shape: ClusterShape = SHAPE, **changes: object) -> Decision:
    request = Request(
        script="train.py",
        epochs=5,
        data=DataSet(paths=("/d",), total_bytes=10**9, samples=50_000),
        resumable=True,
    )
    request = dataclasses.replace(request, **changes)
    return plan_request(request, shape, load_coefficients(), run_id="r", run_dir="/r")


def test_the_chosen_row_is_marked_and_alone_in_it() -> None:
    decision = decide()
    assert decision.chosen is not None
    marked = [line for line in plan_table(decision, SHAPE).splitlines() if line[:1] == ">"]
    assert len(marked) == 1
    assert decision.chosen.partition in marked[0]
    assert f" {decision.chosen.nodes} " in marked[0]


def test_every_partition_and_layout_shows_with_what_it_would_take() -> None:
    table = plan_table(decide(objective=Objective(kind="time")), SHAPE)
    for start in ("> ", "  "):
        assert any(line.startswith(start) for line in table.splitlines())
    assert " 90 %  " in table
    for name in ("standard", "spot", "a-partition"):
        assert name in table
    assert table.count("x as long") + table.count("a near tie") == 4
    assert "1 server and a worker need 2 nodes" in table
    assert "more rows of standard with all-reduce: " in table
    assert "EUR" in table
    assert "Chosen: within 2 % of the shortest predicted time" in table
    assert "Predicted: " in table


def test_staging_stands_beside_reading_from_the_shared_filesystem() -> None:
    """8 nodes, 80 GB: one client reads 1 GB/s, all together 2 GB/s."""
    staged = partition("p", nodes=8, max_nodes_per_job=8, scratch_path="/tmp/%n")
    site = dataclasses.replace(SHAPE, partitions=(staged,))
    data = DataSet(paths=("/d",), total_bytes=80 * 10**9, samples=10**9)
    asked = {"data": data, "nodes": NodeRange(low=8, high=8), "layout": "allreduce"}
    table = plan_table(decide(site, **asked), site)
    plan = decide(site, **asked).chosen
    assert plan is not None
    words = " ".join(table.split())
    slower = ratio(8 * 80 / 2 / plan.prediction.stage_s)
    assert f"at once 5 min 20 s ({slower} x)" in words
    assert "one node after another 10 min 40 s (" in words
    little = {**asked, "data": DataSet(paths=("/d",), total_bytes=100, samples=1)}
    assert "one node after another" not in plan_table(decide(site, **little), site)
    bare = dataclasses.replace(staged, scratch_path=None)
    diskless = dataclasses.replace(site, partitions=(bare,))
    words = " ".join(plan_table(decide(diskless, **asked), diskless).split())
    assert (
        "p has no scratch, so every node reads the shared filesystem, which takes 5 min 20 s; "
        "read one node after another 10 min 40 s (2.0 x)" in words
    )


def test_the_predicted_terms_add_up() -> None:
    plan = decide().chosen
    assert plan is not None
    p = plan.prediction
    parts = (
        p.queue_s
        + p.stage_s
        + p.start_s
        + p.steps * p.step_s
        + p.checkpoints * p.checkpoint_s
        + p.lost_s
    )
    assert parts == pytest.approx(p.total_s)


def test_many_refusals_are_grouped_by_their_reason() -> None:
    many = dataclasses.replace(SHAPE, partitions=tuple(partition(f"p{i}") for i in range(1000)))
    table = plan_table(decide(many, partition="p7"), many)
    assert "and 996 more: not the partition that was asked for (p7)" in table
    assert len(table.splitlines()) < 30


def test_a_refusal_says_what_would_have_come_nearest() -> None:
    decision = decide(objective=Objective(kind="deadline", deadline_s=1.0))
    table = plan_table(decision, SHAPE)
    assert "No plan: no plan keeps the deadline of 1.0 s" in table
    assert "keeps the deadline with less than 1 %, misses it by" in table
    assert not any(line.startswith(">") for line in table.splitlines())


def test_without_prices_node_hours_are_shown() -> None:
    free = dataclasses.replace(SHAPE, partitions=(partition("free", price_per_node_hour=0.0),))
    table = plan_table(decide(free, objective=Objective(kind="cost")), free)
    assert "node-h\n" in table
    assert "EUR" not in table
    assert "states no price: node-hours stand in for cost" in table


@pytest.mark.parametrize("kind", ["time", "cost", "node-hours"])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e9])
@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_line_is_wider_than_the_screen(kind: str, scale: float, width: int) -> None:
    big = dataclasses.replace(
        SHAPE,
        partitions=tuple(
            dataclasses.replace(p, nodes=n, max_nodes_per_job=n, price_per_node_hour=scale)
            for p, n in zip(SHAPE.partitions, (4000, 300, 1), strict=True)
        ),
    )
    data = DataSet(paths=("/d",), total_bytes=int(1e6 * scale), samples=int(1e6 * scale) or 1)
    objective = Objective(kind="time" if kind == "time" else "cost")
    for shape in (SHAPE, big):
        table = plan_table(decide(shape, data=data, objective=objective), shape, width=width)
        assert max(len(line) for line in table.splitlines()) <= width


def test_the_json_holds_the_whole_decision() -> None:
    decision = decide()
    data = json.loads(plan_json(decision, SHAPE))
    assert data["cluster"] == "test"
    assert data["site"] == "/etc/test.toml"
    assert decode(Plan, data["chosen"]) == decision.chosen
    assert len(data["rows"]) == len(decision.rows)
    assert data["considered"] == decision.considered
    refused = decide(objective=Objective(kind="deadline", deadline_s=1.0))
    data = json.loads(plan_json(refused, SHAPE))
    assert data["chosen"] is None
    assert data["refusal"] == refused.refusal


@pytest.mark.parametrize(
    ("seconds", "words", "brief"),
    [
        (0.0, "0 s", "0s"),
        (0.25, "0.25 s", "0.2s"),
        (9.94, "9.9 s", "9.9s"),
        (59.6, "1 min", "60s"),
        (123.0, "2 min 3 s", "2.0m"),
        (3599.9, "1 h", "60m"),
        (19_200.0, "5 h 20 min", "5.3h"),
        (86_399.0, "1 d", "24h"),
        (276_000.0, "3 d 5 h", "77h"),
        (1e12, "11574074 d 2 h", "1e7d"),
        (float("inf"), "for ever", "never"),
    ],
)
def test_durations_in_words(seconds: float, words: str, brief: str) -> None:
    assert duration(seconds) == words
    assert brief_duration(seconds) == brief


@given(st.floats(0.0, 1e15))
def test_columns_are_never_overrun(value: float) -> None:
    assert len(brief_duration(value)) <= 5
    assert len(amount(value)) <= 9


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0.0, "0 B"),
        (4.0, "4 B"),
        (478_504.0, "467 KiB"),
        (1_023_000.0, "999 KiB"),
        (1.5e9, "1.4 GiB"),
        (9e15, "7.99 PiB"),
        (1e20, "88,818 PiB"),
    ],
)
def test_sizes_in_words(number: float, words: str) -> None:
    assert size(number) == words
