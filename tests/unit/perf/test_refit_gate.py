"""Refit promotes what predicts left-out runs no worse, and says when runs drift away."""

from __future__ import annotations

import dataclasses

import pytest
from attempts import attempt

from plans import example_plan
from sbtrain_perf.coefficients import (
    Drift,
    coefficients_from_json,
    coefficients_to_json,
    load_coefficients,
)
from sbtrain_perf.lifetimes import Lived
from sbtrain_perf.planner import plan_request
from sbtrain_perf.refit import refit
from sbtrain_perf.request import ClusterShape, Partition, Request, Spread
from sbtrain_perf.timing_log import AttemptTimings

SHIPPED = load_coefficients()


def test_a_fit_that_predicts_left_out_runs_worse_is_not_promoted() -> None:
    """The models were right about the first run; the next is five times as slow, too near to
    be refused."""
    first = attempt(run_id="run-1", step_s=0.051, noise=0.05)
    known = refit([first], SHIPPED).coefficients
    result = refit([first, attempt(run_id="run-2", step_s=0.25)], known)
    (held,) = result.held_back
    assert held.key[0] == "step"
    assert held.after > held.before + held.tolerance
    assert result.refused == ()
    assert result.coefficients.learnt.steps == known.learnt.steps
    assert result.coefficients.learnt.starts[0].runs == ("run-1", "run-2")


def test_more_of_the_same_overcomes_the_gate() -> None:
    """Where the next runs are as slow, they are the truth."""
    first = attempt(run_id="run-1", step_s=0.051, noise=0.05)
    known = refit([first], SHIPPED).coefficients
    later = [attempt(run_id=f"run-{i}", step_s=0.25, seed=i) for i in range(2, 5)]
    result = refit([first, *later], known)
    assert result.held_back == ()
    (step,) = result.coefficients.learnt.steps
    assert step.runs[-3:] == ("run-2", "run-3", "run-4")
    assert step.compute_s > 0.15


def test_a_like_run_is_promoted_and_old_news_are_not_learnt_twice() -> None:
    runs = [attempt(run_id=f"run-{i}", noise=0.05, seed=i) for i in range(3)]
    known = refit(runs[:2], SHIPPED).coefficients
    result = refit(runs, known)
    assert result.held_back == ()
    assert {one.runs for one in result.verdicts} == {3}
    assert result.coefficients.generation == 2
    assert result.coefficients.parent == 1
    again = refit(runs, result.coefficients)
    assert again.verdicts == ()
    assert again.coefficients is result.coefficients


def planned(run_id: str, step_s: float, *, predicted_s: float, label: str) -> AttemptTimings:
    prediction = dataclasses.replace(
        example_plan().prediction,
        step_s=predicted_s,
        stage_s=2.0,
        start_s=9.0,
        checkpoint_s=0.6,
        spread=Spread(stage=0.1, start=0.1, step=0.1, checkpoint=0.1),
    )
    return attempt(run_id=run_id, step_s=step_s, prediction=prediction, coefficients=label)


def test_runs_that_leave_their_intervals_raise_an_alarm() -> None:
    def drift(slow: int, label: str = "generation 1") -> tuple[Drift, ...]:
        runs = [
            planned(f"run-{i}", 0.3 if i < slow else 0.2, predicted_s=0.2, label=label)
            for i in range(8)
        ]
        return refit(runs, SHIPPED).coefficients.drift

    assert drift(2) == ()
    (alarm,) = drift(4)
    assert (alarm.term, alarm.runs, alarm.outside) == ("step", 8, 4)
    assert alarm.odds == pytest.approx(0.005, abs=0.001)
    assert drift(8)[0].ratio == pytest.approx(1.5, rel=0.01)
    assert drift(8, label="shipped") == ()


ALARM = Drift(
    cluster="test", workload="digits", term="step", runs=8, outside=5, ratio=1.6, odds=1e-4
)


def test_where_nothing_was_measured_the_alarm_stands() -> None:
    """Nothing was learnt then, so there is no new generation either."""
    known = dataclasses.replace(SHIPPED, generation=1, drift=(ALARM,))
    place = {"cluster": "test", "partition": "batch"}
    idle = Lived(run_id="run-1", attempt=0, age_s=60.0, preempted=False, **place)
    assert refit([], known, lived=[idle]).coefficients is known


def test_drift_is_said_in_the_next_plan() -> None:
    known = dataclasses.replace(SHIPPED, generation=1, drift=(ALARM,))
    assert coefficients_from_json(coefficients_to_json(known), source="x") == known
    batch = Partition(
        name="batch", nodes=4, max_nodes_per_job=4, cores_per_node=4, memory_gib_per_node=15
    )
    shape = ClusterShape(
        name="test",
        source="test.toml",
        partitions=(batch,),
        shared_bytes_s=1e9,
        shared_client_bytes_s=5e8,
    )
    request = Request(script="train.py", workload="digits", steps=400)
    decision = plan_request(request, shape, known, run_id="r", run_dir="/r")
    said = "5 of the last 8 runs of digits took steps outside"
    assert any(said in note for note in decision.notes)
    other = dataclasses.replace(request, workload="other")
    decision = plan_request(other, shape, known, run_id="r", run_dir="/r")
    assert not any(said in note for note in decision.notes)
