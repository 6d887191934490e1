"""The planner finds the best of all candidates and says why."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from attempts import example_step
from decisions import SHIPPED, chosen_row, cluster, decide, figures, partition, request
from hypothesis import given, settings
from hypothesis import strategies as st

from sbtrain_perf import search
from sbtrain_perf.codec import plan_from_json, plan_to_json
from sbtrain_perf.coefficients import (
    Coefficients,
    Learnt,
    LearntSpread,
    LearntStart,
    OwnRuns,
    with_learnt,
)
from sbtrain_perf.errors import PlanError
from sbtrain_perf.intervals import normal_share
from sbtrain_perf.placement import roles_of
from sbtrain_perf.request import (
    DataSet,
    GpuType,
    ModelShape,
    NodeRange,
    Objective,
    ObjectiveKind,
    Partition,
    Request,
)
from sbtrain_perf.search import count_rows, expand
from sbtrain_perf.weighing import Weighing

LEARNT = with_learnt(
    SHIPPED,
    Learnt(
        steps=(
            example_step(
                nodes=(2, 4),
                spread=LearntSpread(
                    covariance=(0.01, -0.02, 0.0, -0.02, 0.3, -0.1, 0.0, -0.1, 1.5),
                    noise_sd=0.12,
                ),
            ),
            example_step(
                layout="ps",
                nodes=(3,),
                server_s=0.05,
                spread=LearntSpread(covariance=(0.02, -0.05, -0.05, 0.4), noise_sd=0.2),
            ),
        ),
        starts=(
            LearntStart(
                cluster="test",
                workload="digits",
                fixed_s=9.0,
                node_s=0.5,
                runs=("run-1",),
                spread=LearntSpread(covariance=(0.05, -0.1, -0.1, 0.3), noise_sd=0.1),
            ),
        ),
    ),
    ("run-1",),
)
OWN = ((2, 0, 0.75), (3, 0, 1.3), (7, 1, 0.8), (20, 0, 0.9))
K80 = GpuType(name="K80", peak_tflops=4.113, memory_gib=12, memory_bytes_s=2.4e11)


def test_a_plan_is_worked_out_by_hand() -> None:
    """All-reduce on 4 nodes, every term from its formula with plain arithmetic."""
    asked = request(nodes=NodeRange(low=4, high=4), layout="allreduce")
    plan = decide(asked, cluster()).chosen
    assert plan is not None
    base = SHIPPED.base
    compute = base.compute.fixed_s.value + 32 / 128 * (
        base.compute.activation_s.value * math.sqrt(60e6) + base.compute.parameter_s.value * 1e6
    ) / (16 * base.compute.cpu_core_speed.value)
    transfer = 4e6 / (1.25e9 * base.allreduce.efficiency.value)
    moved = 4 / 3 * (1 + 0.45 * math.log(4 / 3)) * transfer
    step = math.sqrt(compute**2 + moved**2 + (2 * 3 * base.allreduce.hop_s.value) ** 2)
    steps = math.ceil(10 * 50_000 / (4 * 32))
    stage = base.stage.overhead_s.value + 1e8 / 5e8
    stage += 3 * base.stage.chunk_bytes.value / 1.25e9
    start = base.start.fixed_s.value + 4 * base.start.node_s.value
    size = base.checkpoint.parameter_bytes.value * 1e6
    save = base.checkpoint.fixed_s.value + size * (base.checkpoint.byte_s.value + 1e-9)
    hazard = 4 / base.failure.node_mtbf_s.value
    interval = math.sqrt(2 * save / hazard) - save
    saves = math.floor(steps * step / interval) + 1
    run = stage + start + steps * step + saves * save
    lost = run / (1 - hazard * (120 + stage + start + save + interval / 2)) - run
    prediction = plan.prediction
    assert prediction.step_s == pytest.approx(step)
    assert prediction.steps == steps == plan.steps
    assert prediction.stage_s == pytest.approx(stage)
    assert prediction.start_s == pytest.approx(start)
    assert prediction.checkpoint_s == pytest.approx(save)
    assert prediction.checkpoints == saves
    assert plan.checkpoint_interval_s == pytest.approx(interval)
    assert prediction.lost_s == pytest.approx(lost, rel=1e-4)
    assert prediction.total_s == pytest.approx(run + lost)
    held = run + lost - (run + lost) * hazard * 120
    assert prediction.node_hours == pytest.approx(4 * held / 3600)
    assert prediction.cost == pytest.approx(prediction.node_hours)
    assert prediction.dominant == "step"


def test_servers_take_one_update_a_batch_and_their_own_nodes() -> None:
    asked = request(nodes=NodeRange(low=5, high=5), layout="ps", servers=2)
    plan = decide(asked, cluster()).chosen
    assert plan is not None
    assert (plan.workers, plan.servers, plan.nodes) == (3, 2, 5)
    assert plan.steps == math.ceil(10 * 50_000 / 32)
    assert [(r.name, r.index, r.node) for r in plan.roles] == [
        ("chief", 0, 0),
        ("ps", 0, 0),
        ("ps", 1, 1),
        ("worker", 0, 2),
        ("worker", 1, 3),
        ("worker", 2, 4),
    ]


def test_all_reduce_has_one_worker_a_node() -> None:
    assert [(r.name, r.index, r.node) for r in roles_of(nodes=2, servers=0)] == [
        ("worker", 0, 0),
        ("worker", 1, 1),
    ]


def test_fixed_steps_are_the_same_for_every_row() -> None:
    decision = decide(request(steps=500, epochs=None), cluster())
    assert {row.prediction.steps for row in decision.rows if row.prediction} == {500}
    assert chosen_row(decision).layout == "ps"  # updates come faster with more workers
    assert any("not in fewer steps" in note for note in decision.notes)
    ring = decide(request(steps=500, epochs=None, layout="allreduce"), cluster())
    assert chosen_row(ring).nodes == 1


PARTITIONS = st.builds(
    partition,
    name=st.uuids().map(str),
    nodes=st.integers(1, 400),
    max_nodes_per_job=st.integers(1, 400),
    cores_per_node=st.integers(1, 128),
    gpu=st.none() | st.just(K80),
    gpus_per_node=st.integers(1, 8),
    price_per_node_hour=st.sampled_from([0.0, 0.5, 3.0]),
    preemptible=st.booleans(),
    mean_time_to_preemption_s=st.none() | st.floats(60.0, 1e7),
    grace_s=st.sampled_from([0.0, 30.0]),
    max_time_s=st.none() | st.floats(30.0, 1e6),
    network_bytes_s=st.floats(1e8, 5e10),
    scratch_path=st.sampled_from([None, "/tmp/%n"]),
)
OBJECTIVES = st.one_of(
    st.sampled_from(["balanced", "time", "cost", "node-hours"]).map(
        lambda kind: Objective(kind=kind)
    ),
    st.floats(20.0, 1e6).map(lambda s: Objective(kind="deadline", deadline_s=s)),
)
REQUESTS = st.builds(
    request,
    epochs=st.none() | st.floats(0.01, 1000.0),
    steps=st.none() | st.integers(1, 10**7),
    batch_per_worker=st.integers(1, 4096),
    data=st.builds(DataSet, total_bytes=st.integers(0, 10**13), samples=st.integers(1, 10**8)),
    model=st.builds(
        ModelShape, parameters=st.integers(10**3, 10**10), tensors=st.integers(1, 1000)
    ),
    resumable=st.booleans(),
    layout=st.sampled_from(["auto", "allreduce", "ps"]),
    nodes=st.builds(NodeRange, low=st.integers(1, 20), high=st.none() | st.integers(1, 300)),
    objective=OBJECTIVES,
    time_limit_s=st.none() | st.floats(60.0, 1e6),
)


@settings(max_examples=150, deadline=None)
@given(
    REQUESTS,
    st.lists(PARTITIONS, min_size=1, max_size=4),
    st.sampled_from([0, 30, 20_000]),
    st.data(),
)
def test_the_choice_is_the_best_of_all_rows(
    asked: Request, partitions: list[Partition], few_rows: int, data: st.DataObject
) -> None:
    """Against predicting every single row: the search may not lose the best one. All
    partitions are named: none is set aside."""
    shape = cluster(*partitions)
    names = ",".join(one.name for one in partitions)
    asked = dataclasses.replace(asked, partition=names)
    waits = {p.name: data.draw(st.sampled_from([0.0, 500.0])) for p in partitions}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "FEW_ROWS", few_rows)
        patch.setattr(search, "_PROMISING", 10)
        decision = decide(asked, shape, **waits)
    weighing = Weighing(asked, shape, SHIPPED, waits)
    rows, _ = expand(weighing.lanes)
    values = weighing.values(weighing.forecast(rows))
    if asked.objective.kind == "deadline":
        values = np.where(weighing.keeps_deadline(rows), values, np.inf)
    assert decision.considered == count_rows(weighing.lanes) + len(weighing.refused)
    if asked.objective.kind == "deadline" and not np.any(np.isfinite(values)):
        z = weighing.deviations(rows).quantile(weighing.deadline_s)
        if not asked.resumable:
            if decision.chosen is not None:
                assert chosen_row(decision).deadline_odds <= weighing.odds(rows).max() + 1e-9
        elif normal_share(z.max(initial=-math.inf)) >= 0.011:
            chosen = chosen_row(decision)
            name = [p.name for p in weighing.fit].index(chosen.partition)
            at = (rows.partition == name) & (rows.low == chosen.nodes)
            at &= rows.servers == chosen.servers
            assert z[at][0] == pytest.approx(z.max(), abs=1e-4)
            assert chosen.deadline_odds == pytest.approx(normal_share(z.max()), abs=1e-4)
        elif normal_share(z.max(initial=-math.inf)) < 0.009:
            assert decision.chosen is None
        return
    if not np.any(np.isfinite(values)):
        assert decision.chosen is None
        assert decision.refusal
        return
    assert decision.chosen is not None
    if asked.objective.kind == "time":  # of what is within 2 %, the least time x price
        forecast = weighing.forecast(rows)
        prices = forecast.cost if weighing.priced else forecast.node_hours
        near = values <= 1.02 * values.min()
        values[near] *= prices[near]
        values[~near] = np.inf
    order = np.lexsort((rows.servers, rows.partition, rows.low, values))
    best = rows.take(order[:1])
    chosen = chosen_row(decision)
    assert chosen.nodes == best.low[0]
    assert chosen.servers == best.servers[0]
    assert chosen.partition == weighing.fit[int(best.partition[0])].name
    assert plan_from_json(plan_to_json(decision.chosen)) == decision.chosen


@settings(max_examples=150, deadline=None)
@given(REQUESTS, PARTITIONS, st.sampled_from([SHIPPED, LEARNT]), st.data())
def test_the_bound_of_a_range_is_below_all_its_rows(
    asked: Request, one: Partition, known: Coefficients, data: st.DataObject
) -> None:
    one = dataclasses.replace(one, name=data.draw(st.sampled_from(["small", "other"])))
    if known is LEARNT and data.draw(st.booleans()):
        own = tuple(OwnRuns(nodes=n, servers=s, ratio=r, runs=1) for n, s, r in OWN)
        here = example_step(batch_per_worker=asked.batch_per_worker, own=own)
        learnt = dataclasses.replace(known.learnt, steps=(here, *known.learnt.steps))
        known = dataclasses.replace(known, learnt=learnt)
    weighing = Weighing(asked, cluster(one), known, {})
    lanes = weighing.lanes
    if not len(lanes):
        return
    lane = lanes.take(np.array([data.draw(st.integers(0, len(lanes) - 1))]))
    low = data.draw(st.integers(int(lane.low[0]), int(lane.high[0])))
    part = dataclasses.replace(lane, low=np.array([low]))
    bound = weighing.values(weighing.forecast(part))[0]
    rows, _ = expand(part)
    values = weighing.values(weighing.forecast(rows))
    assert bound <= values.min() * (1 + 1e-9)
    z = data.draw(st.floats(-7.0, 7.0))
    totals = weighing.total_s(rows, z=z)
    rounding = 1e-9 * min(weighing.total_s(rows, z=0.0).max(), 1e300)
    assert weighing.total_s(part, z=z)[0] <= totals.min() + rounding


def test_every_row_but_the_chosen_one_carries_a_reason() -> None:
    shape = cluster(
        partition("cpu"),
        partition("gpu", gpu=K80, gpus_per_node=2),
        partition("spot", preemptible=True, mean_time_to_preemption_s=3600.0),
    )
    for kind in ("time", "cost", "node-hours"):
        decision = decide(request(objective=Objective(kind=kind)), shape)
        assert len(decision.rows) == decision.considered > 100
        assert [row.rejected is None for row in decision.rows].count(True) == 1
        assert decision.rows[0].chosen
        assert decision.rows[0].rejected is None


@pytest.mark.parametrize(
    ("kind", "least"),
    [
        ("time", lambda p: p.total_s),
        ("cost", lambda p: p.cost),
        ("node-hours", lambda p: p.node_hours),
    ],
)
def test_the_objective_is_what_is_least(kind: ObjectiveKind, least: object) -> None:
    assert callable(least)
    shape = cluster(
        partition("slow", cores_per_node=4), partition("dear", price_per_node_hour=9)
    )
    decision = decide(request(objective=Objective(kind=kind)), shape)
    best = chosen_row(decision).prediction
    assert best is not None
    near = 1.02 if kind == "time" else 1.0
    assert all(least(best) <= near * least(r.prediction) for r in decision.rows if r.prediction)


def test_a_hair_of_time_is_not_worth_ten_times_the_price() -> None:
    """One partition is 1 %, 3 % faster and ten times dearer."""

    def chosen(gain: float) -> tuple[str, str]:
        dear = partition("dear", price_per_node_hour=10.0)
        cheap = partition("cheap")
        time = Objective(kind="time")
        one = request(nodes=NodeRange(low=4, high=4), layout="allreduce", objective=time)
        total = decide(one, cluster(cheap)).chosen
        assert total is not None
        waits = {"cheap": total.prediction.total_s * gain}
        plan = decide(one, cluster(dear, cheap), **waits).chosen
        assert plan is not None
        return plan.partition, plan.reason

    where, why = chosen(0.01)
    assert where == "cheap"
    assert figures(why)[0] == 2.0  # per cent: a near tie
    assert figures(why)[-3:] == [4.0, 1.0, 10.0]  # nodes, per cent faster, times the cost
    assert chosen(0.03)[0] == "dear"


def test_a_near_tie_is_seen_among_millions_of_rows() -> None:
    """In one partition alone, more nodes past the knee of the curve cost more than they gain;
    the reason says so, and the fastest row is listed."""
    big = cluster(partition("a", nodes=5000, max_nodes_per_job=5000))
    decision = decide(request(epochs=100, objective=Objective(kind="time")), big)
    chosen = chosen_row(decision)
    faster = [r for r in decision.rows if "a near tie" in (r.rejected or "")]
    assert faster
    assert min(r.nodes for r in faster) > chosen.nodes
    assert decision.chosen is not None
    assert "% faster, at" in decision.chosen.reason


def test_of_rows_that_cost_nothing_the_better_trade_is_taken() -> None:
    """Neither the slowest, nor all nodes there are for a hair of time."""
    free = cluster(
        partition("free", nodes=400, max_nodes_per_job=400, price_per_node_hour=0.0),
        partition("paid"),
    )
    decision = decide(request(objective=Objective(kind="cost")), free)
    row = chosen_row(decision)
    assert row.partition == "free"
    assert 1 < row.nodes < 400
    ends = {r: r.prediction for r in decision.rows if r.partition == "free" and r.prediction}
    trades = {r.nodes: p.total_s * p.node_hours for r, p in ends.items()}
    assert trades[row.nodes] == min(trades.values())
    assert any("counts as free" in note for note in decision.notes)
    assert row.prediction is not None
    assert row.prediction.cost == 0.0


def test_queue_waits_turn_the_choice() -> None:
    shape = cluster(partition("fast", cores_per_node=32), partition("slow"))
    assert chosen_row(decide(request(), shape)).partition == "fast"
    waiting = decide(request(), shape, fast=10_000.0)
    assert chosen_row(waiting).partition == "slow"
    fast = next(r for r in waiting.rows if r.partition == "fast")
    assert fast.prediction is not None
    assert fast.prediction.queue_s == 10_000.0
    assert fast.prediction.dominant == "queue"


def test_the_reason_names_the_winner_its_main_term_and_the_runner_up() -> None:
    shape = cluster(partition("fast", cores_per_node=32), partition("slow"))
    plan = decide(request(objective=Objective(kind="time")), shape).chosen
    assert plan is not None
    assert plan.reason.startswith("shortest predicted time, ")
    assert "of fast with" in plan.reason
    assert "training steps are" in plan.reason
    assert "best of the other layout: " in plan.reason
    assert " x)" in plan.reason


def test_a_workload_that_never_ran_is_said_so() -> None:
    decision = decide(request(model=ModelShape()), cluster())
    assert any("never run before" in note for note in decision.notes)
    assert any(1.9 in figures(note) for note in decision.notes)  # million parameters
    assert decision.chosen is not None
    assert decision.chosen.coefficients == "shipped"
    assert not decision.chosen.basis.parameters_known


def test_without_steps_and_epochs_the_assumption_is_said() -> None:
    one_epoch = decide(request(epochs=None), cluster())
    assert any("1 epoch" in note for note in one_epoch.notes)
    unknown = decide(request(epochs=None, data=DataSet()), cluster())
    assert any("1000 steps" in note for note in unknown.notes)
    assert unknown.chosen is not None
    assert unknown.chosen.steps == 1000


@pytest.mark.parametrize(
    "changes",
    [
        {"data": DataSet()},
        {"epochs": -1.0},
        {"epochs": math.inf},
        {"steps": 0},
        {"batch_per_worker": 0},
    ],
)
def test_what_cannot_be_predicted_is_an_error_with_a_hint(changes: dict[str, object]) -> None:
    with pytest.raises(PlanError) as caught:
        decide(request(**changes), cluster())
    assert caught.value.hint


@pytest.mark.parametrize(
    ("changes", "where", "said"),
    [
        ({"partition": "other"}, {}, "not the partition that was asked for"),
        ({"sbatch_options": ("--gres=gpu:2",)}, {}, "GPUs were asked for"),
        ({"sbatch_options": ("-G", "2")}, {}, "GPUs were asked for"),
        ({"nodes": NodeRange(low=9)}, {}, "9 nodes at least, it gives one job 8"),
        ({}, {"scratch_bytes": 10**7}, "does not fit its scratch"),
        ({"layout": "ps"}, {"nodes": 1}, "1 server and a worker need 2 nodes"),
        ({"layout": "ps", "servers": 8}, {}, "8 servers and a worker need 9 nodes"),
        ({"model": ModelShape(parameters=10 * 10**9)}, {}, "149 GiB a worker"),
        (
            {"model": ModelShape(parameters=2 * 10**9)},
            {"gpu": K80, "gpus_per_node": 1},
            "a GPU",
        ),
        ({"resumable": False, "time_limit_s": 60.0}, {}, "the time limit is 1 min"),
        ({"time_limit_s": 10.0}, {}, "ends before the first step"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(
    changes: dict[str, object], where: dict[str, object], said: str
) -> None:
    decision = decide(request(**changes), cluster(partition(**where)))
    assert decision.chosen is None
    assert said in decision.refusal
    assert any(said in (row.rejected or "") for row in decision.rows)


def test_a_run_longer_than_the_time_limit_resumes_or_is_refused() -> None:
    whole = decide(request(nodes=NodeRange(low=1, high=1)), cluster()).chosen
    assert whole is not None
    limit = whole.prediction.total_s / 3
    again = decide(
        request(nodes=NodeRange(low=1, high=1), time_limit_s=limit), cluster()
    ).chosen
    assert again is not None
    assert again.prediction.lost_s > whole.prediction.lost_s + 2 * 120.0
    with_spare = decide(request(time_limit_s=limit, resumable=False), cluster())
    alone = [r for r in with_spare.rows if r.nodes == 1 and not r.chosen]
    assert all("does not resume" in (r.rejected or "") for r in alone)


def test_preemption_costs_more_where_notice_is_too_short() -> None:
    def lost(grace_s: float) -> float:
        spot = partition(preemptible=True, mean_time_to_preemption_s=3600.0, grace_s=grace_s)
        decision = decide(request(nodes=NodeRange(low=2, high=2)), cluster(spot))
        assert decision.chosen is not None
        noted = any("does not fit the" in risk for risk in decision.risks)
        assert noted is (grace_s == 0.1)
        return decision.chosen.prediction.lost_s

    assert lost(0.1) > lost(30.0) > 0.0
    assert lost(0.0) == lost(30.0)  # without a grace time there is KillWait, 30 s


def test_preemption_that_outruns_progress_is_refused() -> None:
    spot = partition(preemptible=True, mean_time_to_preemption_s=60.0)
    decision = decide(request(), cluster(spot))
    assert decision.chosen is None
    assert "interrupted faster than it makes progress" in decision.refusal


def test_rows_that_are_not_listed_are_counted() -> None:
    big = cluster(partition("a", nodes=5000, max_nodes_per_job=5000), partition("b", gpu=None))
    decision = decide(request(), big)
    assert decision.considered > 50_000
    assert len(decision.rows) < 40
    assert sum(rest.rows for rest in decision.rest) + len(decision.rows) == decision.considered


def test_shared_data_is_read_by_every_node_where_there_is_no_scratch() -> None:
    asked = request(nodes=NodeRange(low=8, high=8), layout="allreduce")
    diskless = decide(asked, cluster(partition(scratch_path=None))).chosen
    assert diskless is not None
    assert diskless.prediction.stage_s == pytest.approx(8 * 1e8 / 2e9)


def test_activations_count_against_memory() -> None:
    model = ModelShape(parameters=1000, activation_bytes_per_sample=2**30)
    fits = decide(request(model=model), cluster(partition(memory_gib_per_node=40))).chosen
    assert fits is not None
    decision = decide(request(model=model), cluster(partition(memory_gib_per_node=30)))
    assert decision.chosen is None
    assert {32.0, 30.0} <= set(figures(decision.refusal))
