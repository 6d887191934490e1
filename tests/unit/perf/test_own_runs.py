"""A configuration that was run is predicted by its own runs; the search stays exact."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from attempts import attempt, example_step, synchronous_s
from decisions import SHIPPED, cluster, partition, request
from hypothesis import given, settings
from hypothesis import strategies as st

from sbtrain_perf import search
from sbtrain_perf.account import account_for
from sbtrain_perf.coefficients import (
    Coefficients,
    Learnt,
    OwnRuns,
    coefficients_from_json,
    coefficients_to_json,
    with_learnt,
)
from sbtrain_perf.errors import CoefficientsError
from sbtrain_perf.own_runs import MOST_OFF, OwnRatios, own_log_ratio, own_runs
from sbtrain_perf.planner import plan_request
from sbtrain_perf.refit import refit
from sbtrain_perf.request import Objective
from sbtrain_perf.search import expand
from sbtrain_perf.weighing import Weighing


def test_more_runs_of_a_configuration_are_believed_more() -> None:
    off = math.log(1.1)
    believed = [own_log_ratio([off] * runs) / off for runs in (1, 2, 10, 1000)]
    assert believed == sorted(believed)
    assert 0.75 < believed[0] < 0.9
    assert believed[-1] == pytest.approx(1.0, abs=1e-3)


def test_neither_one_wrong_run_nor_one_far_off_rules() -> None:
    assert abs(own_log_ratio([0.05, 0.05, 0.06, 9.0])) < 0.07
    assert own_log_ratio([2.0] * 50) <= MOST_OFF


def test_runs_are_gathered_by_configuration() -> None:
    four, served = own_runs([(4, 1, 0.1), (4, 0, 0.0), (4, 0, 0.0)])
    assert (four.nodes, four.servers, four.runs, four.ratio) == (4, 0, 2, 1.0)
    assert (served.servers, served.runs) == (1, 1)
    assert served.ratio > 1.05


ROWS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.builds(
            OwnRuns,
            nodes=st.integers(1, 12),
            servers=st.integers(0, 2),
            ratio=st.floats(0.74, 1.35),
            runs=st.just(1),
        ),
    ),
    max_size=6,
)


@given(ROWS, st.integers(0, 2), st.integers(0, 2), st.integers(1, 12), st.integers(0, 12))
def test_ratios_of_rows_and_bounds_of_ranges(
    rows: list[tuple[int, OwnRuns]], at: int, servers: int, low: int, width: int
) -> None:
    table = OwnRatios.of(rows, partitions=3)

    def factor(low: int, high: int) -> float:
        one = {"partition": at, "servers": servers, "low": low, "high": high}
        return float(table.factors(**{k: np.array([v]) for k, v in one.items()})[0])

    known = {(at, own.nodes, own.servers): own.ratio for at, own in rows}
    singles = [factor(nodes, nodes) for nodes in range(low, low + width + 1)]
    assert singles == [known.get((at, low + i, servers), 1.0) for i in range(len(singles))]
    if width:
        assert factor(low, low + width) <= min(singles)


def knows(batch: int, *own: OwnRuns) -> Coefficients:
    step = example_step(batch_per_worker=batch, nodes=(2,), own=own)
    return with_learnt(SHIPPED, Learnt(steps=(step,)), ("run-1",))


def ran(nodes: int, ratio: float) -> OwnRuns:
    return OwnRuns(nodes=nodes, servers=0, ratio=ratio, runs=3)


SMALL = cluster(partition(name="small", nodes=300, max_nodes_per_job=300), partition())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.builds(ran, st.integers(1, 300), st.floats(0.75, 1.3)), max_size=5),
    st.sampled_from(["time", "cost", "node-hours"]),
    st.sampled_from([0.01, 3.0, 300.0]),
)
def test_the_search_loses_no_row_to_a_configurations_own_ratio(
    own: list[OwnRuns], kind: str, epochs: float
) -> None:
    asked = request(objective=Objective(kind=kind), epochs=epochs)
    weighing = Weighing(asked, SMALL, knows(32, *own), {})
    rows, _ = expand(weighing.lanes)
    values = weighing.values(weighing.predictor.forecast(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "FEW_ROWS", 30)
        patch.setattr(search, "_PROMISING", 10)
        best = weighing.best(most=20)
    found = weighing.values(weighing.predictor.forecast(best))
    assert found.min() == pytest.approx(values.min(), rel=1e-9)


def test_a_configuration_that_ran_better_than_the_form_is_taken() -> None:
    asked = request(batch_per_worker=64, layout="allreduce", epochs=1000)
    ten = cluster(partition(name="small", nodes=10, max_nodes_per_job=10))

    def chosen(*own: OwnRuns) -> int:
        decision = plan_request(asked, ten, knows(64, *own), run_id="r", run_dir="/runs/r")
        assert decision.chosen is not None
        return decision.chosen.nodes

    assert chosen() == 10
    assert chosen(ran(8, 0.75)) == 8
    assert chosen(ran(10, 1.3)) == 9


def test_another_batch_or_partition_knows_nothing_of_it() -> None:
    for changes in ({"batch_per_worker": 32}, {"workload": "other"}):
        weighing = Weighing(request(**changes), SMALL, knows(64, ran(9, 0.8)), {})
        assert not len(weighing.terms.own.keys)
    weighing = Weighing(
        request(batch_per_worker=64), cluster(partition()), knows(64, ran(9, 0.8)), {}
    )
    assert not len(weighing.terms.own.keys)


def form(nodes: int) -> float:
    return synchronous_s(0.3, 0.1, 0.004, nodes=nodes)


def test_refit_learns_what_a_node_count_has_of_its_own() -> None:
    """Eight nodes, over two switches say, are 15 % slower than what the others tell."""
    runs = [
        attempt(
            run_id=f"run-{nodes}-{i}",
            nodes=nodes,
            step_s=form(nodes) * (1.15 if nodes == 8 else 1.0),
            noise=0.02,
            seed=10 * nodes + i,
        )
        for nodes in (1, 2, 4, 8, 16, 32)
        for i in range(3)
    ]
    (step,) = refit(runs, SHIPPED).coefficients.learnt.steps

    def predicted(nodes: int) -> float:
        own = {one.nodes: one.ratio for one in step.own}
        terms = (step.compute_s, step.transfer_s, step.hop_s)
        return synchronous_s(*terms, nodes=nodes) * own.get(nodes, 1.0)

    assert predicted(8) == pytest.approx(1.15 * form(8), rel=0.03)
    assert predicted(4) == pytest.approx(form(4), rel=0.03)
    assert predicted(12) == pytest.approx(form(12), rel=0.08)


def test_why_says_how_many_runs_were_of_the_very_configuration() -> None:
    runs = [
        attempt(run_id=f"run-{n}", nodes=n, step_s=form(n) * (1.2 if n == 4 else 1.0), seed=n)
        for n in (1, 2, 4, 8)
    ]
    learnt = refit(runs, SHIPPED).coefficients
    account = account_for(runs[2].plan, [runs[2]], learnt)
    (step,) = (term for term in account.terms if term.term == "step")
    assert "1 of this configuration" in step.source
    assert "slower than all of them say" in step.source


def test_files_keep_them_and_older_files_have_none() -> None:
    known = knows(64, ran(9, 0.8))
    text = coefficients_to_json(known)
    assert coefficients_from_json(text, source="f") == known
    older = text.replace('"own"', '"owns"')
    with pytest.raises(CoefficientsError, match="owns: unknown key"):
        coefficients_from_json(older, source="f")
    without = dataclasses.replace(known.learnt.steps[0], own=())
    assert example_step(batch_per_worker=64, nodes=(2,)) == without
    wrong = coefficients_to_json(knows(64, ran(9, 0.0)))
    with pytest.raises(CoefficientsError, match=r"own\[0\].ratio: 0.0 is out of range"):
        coefficients_from_json(wrong, source="f")
