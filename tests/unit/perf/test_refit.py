"""Refit learns what runs measured, doubts what is thin, and refuses what cannot be."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from attempts import attempt, synchronous_s

from plans import example_plan
from sbtrain_perf.coefficients import (
    Coefficients,
    LearntStep,
    coefficients_from_json,
    coefficients_to_json,
    load_coefficients,
)
from sbtrain_perf.measured import measure_attempts, step_seconds
from sbtrain_perf.models.parameter_server import update_s
from sbtrain_perf.planner import plan_request
from sbtrain_perf.refit import RefitResult, refit
from sbtrain_perf.request import (
    ClusterShape,
    DataSet,
    NodeRange,
    Partition,
    Plan,
    Request,
    Role,
)
from sbtrain_perf.term_forms import form_of
from sbtrain_perf.timing_log import AttemptTimings, Phase, RankSteps, TimingLog, read_timing_log

SHIPPED = load_coefficients()


def errors(result: RefitResult) -> dict[str, tuple[float, float]]:
    return {e.term: (e.before, e.after) for e in result.errors}


def learnt_step(result: RefitResult) -> LearntStep:
    (step,) = result.coefficients.learnt.steps
    return step


def test_one_run_is_enough_to_predict_its_repetition() -> None:
    result = refit([attempt(noise=0.1)], SHIPPED)
    assert result.coefficients.generation == 1
    assert result.coefficients.sources == ("run-1",)
    assert set(errors(result)) == {"stage", "start", "step", "checkpoint"}
    for before, after in errors(result).values():
        assert after < before
        assert after < 0.12


def test_shrinkage_keeps_one_run_from_ruling_alone() -> None:
    """Between prior and data, and nearer to the data with every run."""
    prior = SHIPPED.base.start.fixed_s.value + 2 * SHIPPED.base.start.node_s.value

    def predicted(runs: int) -> float:
        same = [attempt(run_id=f"run-{i}", start_s=60.0) for i in range(runs)]
        (start,) = refit(same, SHIPPED).coefficients.learnt.starts
        return start.fixed_s + 2 * start.node_s

    assert prior < predicted(1) < predicted(3) < predicted(30) < 60.0
    assert predicted(30) == pytest.approx(60.0, rel=0.02)


def test_several_node_counts_tell_computing_from_communication() -> None:
    truth = {"compute_s": 0.3, "transfer_s": 0.05, "hop_s": 0.004}
    runs = [
        attempt(
            run_id=f"run-{n}-{i}",
            nodes=n,
            step_s=synchronous_s(*truth.values(), nodes=n),
            noise=0.05,
            seed=10 * n + i,
        )
        for n in (1, 2, 4, 8, 16)
        for i in range(3)
    ]
    step = learnt_step(refit(runs, SHIPPED))
    assert step.nodes == (1, 2, 4, 8, 16)
    assert step.compute_s == pytest.approx(0.3, rel=0.05)
    for nodes in (3, 12, 32):
        predicted = synchronous_s(step.compute_s, step.transfer_s, step.hop_s, nodes=nodes)
        assert predicted == pytest.approx(synchronous_s(*truth.values(), nodes=nodes), rel=0.1)


def test_each_layout_has_a_start_of_its_own() -> None:
    """Servers take longer to come up: neither layout pays for the other."""
    runs = [
        attempt(run_id="run-1", nodes=2, start_s=5.0),
        attempt(run_id="run-2", nodes=2, start_s=5.0, seed=2),
        attempt(run_id="run-3", layout="ps", nodes=3, servers=1, start_s=30.0, seed=3),
        attempt(run_id="run-4", layout="ps", nodes=3, servers=1, start_s=30.0, seed=4),
    ]
    starts = {s.layout: s for s in refit(runs, SHIPPED).coefficients.learnt.starts}
    ring, served = starts["allreduce"], starts["ps"]
    assert ring.fixed_s + 2 * ring.node_s == pytest.approx(5.0, rel=0.15)
    assert served.fixed_s + 3 * served.node_s == pytest.approx(30.0, rel=0.15)
    assert served.runs == ("run-3", "run-4")


def test_servers_saturation_is_learnt_from_several_worker_counts() -> None:
    server = SHIPPED.base.server

    def updates(workers: int) -> float:
        return float(
            update_s(
                0.4,
                0.06,
                workers=workers,
                share=1.0,
                sharpness=server.sharpness.value,
            )
        )

    runs = [
        attempt(
            run_id=f"run-{n}", layout="ps", nodes=n + 1, servers=1, step_s=updates(n), seed=n
        )
        for n in (1, 2, 4, 6, 8, 12)
    ]
    step = learnt_step(refit(runs, SHIPPED))
    assert step.compute_s == pytest.approx(0.4, rel=0.05)
    assert step.server_s == pytest.approx(0.06, rel=0.05)
    assert (step.transfer_s, step.hop_s) == (0.0, 0.0)


def test_checkpoints_are_learnt_as_fixed_time_and_rate() -> None:
    saves = tuple((1.0 + 2e-8 * size, size) for size in (1e6, 1e7, 1e8, 5e8))
    result = refit([attempt(saves=saves)], SHIPPED)
    (save,) = result.coefficients.learnt.checkpoints
    assert save.fixed_s == pytest.approx(1.0, rel=0.1)
    assert save.byte_s == pytest.approx(2e-8, rel=0.1)
    (model,) = result.coefficients.learnt.models
    assert (model.parameters, model.tensors) == (77_850, 8)
    assert model.checkpoint_bytes == 55_000_000


def test_staging_is_learnt_as_overhead_and_rate() -> None:
    runs = [
        attempt(run_id=f"run-{size}", stage_bytes=size, stage_s=4.0 + size / 1e8)
        for size in (1e6, 1e8, 1e9, 1e10)
    ]
    (stage,) = refit(runs, SHIPPED).coefficients.learnt.stages
    assert stage.overhead_s == pytest.approx(4.0, rel=0.1)
    assert stage.rate_bytes_s == pytest.approx(1e8, rel=0.1)


@pytest.mark.parametrize(("layout", "servers"), [("allreduce", 0), ("ps", 2)])
def test_forms_are_those_of_the_models(layout: str, servers: int) -> None:
    run = attempt(layout="ps" if servers else "allreduce", nodes=5, servers=servers)
    (sample,) = [s for s in measure_attempts((run,)).samples if s.term == "step"]
    form = form_of(sample, SHIPPED.base)
    server = SHIPPED.base.server
    busy_s = server.tensor_s.value * 8 + server.parameter_byte_s.value * 4 * 77_850
    expected = (
        update_s(
            0.05,
            busy_s,
            workers=3,
            share=2.0**-server.sharing.value,
            sharpness=server.sharpness.value,
        )
        if layout == "ps"
        else synchronous_s(0.05, 0.02 * 77_850 / 1_857_722, 0.0001, nodes=5)
    )
    assert form.seconds(form.prior) == pytest.approx(float(expected))


def test_the_first_steps_count_as_start_up() -> None:
    measured = measure_attempts((attempt(start_s=9.0, step_s=0.2),))
    by_term = {s.term: s.seconds for s in measured.samples}
    assert by_term["step"] == pytest.approx(0.2)
    assert by_term["start"] == pytest.approx(0.5 + 9.0 - 2.0 + 1.5)


def test_a_step_is_the_median_of_stretches_not_of_single_steps() -> None:
    """One step in four is slow: the total follows the mean, not the median."""
    run = attempt(steps=404, step_s=0.1)
    seconds = run.ranks[0].seconds.copy()
    seconds[::4] = 0.5
    bumpy = dataclasses.replace(
        run, ranks=(dataclasses.replace(run.ranks[0], seconds=seconds),)
    )
    assert step_seconds(bumpy) == pytest.approx(0.2, rel=0.05)


def test_a_stall_does_not_count_as_step_time() -> None:
    run = attempt(steps=400, step_s=0.1)
    seconds = run.ranks[0].seconds.copy()
    seconds[200] = 300.0
    stalled = dataclasses.replace(
        run, ranks=(dataclasses.replace(run.ranks[0], seconds=seconds),)
    )
    assert step_seconds(stalled) == pytest.approx(0.1, rel=0.01)


def with_ranks(run: AttemptTimings, *seconds: float, roles: tuple[Role, ...]) -> AttemptTimings:
    steps = np.arange(1, 101)
    ranks = tuple(
        RankSteps(rank=i, step=steps, seconds=np.full(100, s), samples_per_step=32)
        for i, s in enumerate(seconds)
    )
    plan = dataclasses.replace(run.plan, roles=roles)
    return dataclasses.replace(run, plan=plan, ranks=ranks)


def test_the_chiefs_steps_are_the_updates_else_the_workers_rates_add_up() -> None:
    run = attempt(layout="ps", nodes=4, servers=1)
    worker = Role(name="worker", index=0, node=1)
    chief = Role(name="chief", index=0, node=0)
    led = with_ranks(run, 0.05, 0.1, 0.1, roles=(chief, worker, worker))
    assert step_seconds(led) == pytest.approx(0.05)
    unled = with_ranks(run, 0.1, 0.1, 0.05, roles=(worker, worker, worker))
    assert step_seconds(unled) == pytest.approx(0.025)
    ring = with_ranks(attempt(nodes=3), 0.1, 0.2, 0.12, roles=(worker, worker, worker))
    assert step_seconds(ring) == pytest.approx(0.12)


def test_few_steps_teach_nothing_of_steps() -> None:
    result = refit([attempt(steps=5)], SHIPPED)
    assert "step" not in errors(result)
    assert result.coefficients.learnt.steps == ()
    assert result.coefficients.learnt.starts != ()


def poisoned(run: AttemptTimings, **changes: object) -> AttemptTimings:
    phases = tuple(
        dataclasses.replace(p, **changes) if p.name == "stage" else p for p in run.phases
    )
    return dataclasses.replace(run, phases=phases)


@pytest.mark.parametrize(
    "changes",
    [
        {"seconds": -1.0},
        {"seconds": 0.0},
        {"seconds": math.nan},
        {"seconds": math.inf},
        {"numbers": {"size_bytes": -5.0}},
        {"numbers": {"size_bytes": math.nan}},
        {"seconds": 1e9},
        {"seconds": 400.0},
        {"seconds": 0.005},
    ],
)
def test_a_poisoned_record_is_refused_and_changes_nothing(changes: dict[str, object]) -> None:
    """Start-up is measured with staging left out, so that it is refused along with it."""
    good = [attempt(run_id=f"run-{i}", noise=0.05, seed=i) for i in range(8)]
    clean = refit(good, SHIPPED)
    bad = poisoned(attempt(run_id="bad"), **changes)
    result = refit([*good, bad], SHIPPED)
    assert ("bad", "stage") in {(r.run_id, r.term) for r in result.refused}
    assert result.coefficients.learnt.stages == clean.coefficients.learnt.stages
    (refused,) = [r for r in result.refused if r.term == "stage"]
    assert refused.reason


@pytest.mark.parametrize("value", [math.nan, -0.1, math.inf, 0.0])
def test_a_step_that_no_clock_gave_spoils_its_attempts_steps(value: float) -> None:
    bad = attempt(run_id="bad")
    bad.ranks[0].seconds[50] = value
    result = refit([attempt(), bad], SHIPPED)
    assert {(r.run_id, r.term) for r in result.refused} == {("bad", "start"), ("bad", "step")}
    assert learnt_step(result).runs == ("run-1",)


def test_a_step_ten_spreads_from_the_others_is_refused() -> None:
    good = [attempt(run_id=f"run-{i}", noise=0.05, seed=i) for i in range(6)]
    result = refit([*good, attempt(run_id="bad", step_s=2.0)], SHIPPED)
    assert [(r.run_id, r.term) for r in result.refused] == [("bad", "step")]
    assert "2 s where about 0.2 s are usual" in result.refused[0].reason


def test_nothing_learnt_leaves_the_coefficients_as_they_are() -> None:
    assert refit([], SHIPPED) == RefitResult(coefficients=SHIPPED, errors=(), refused=())
    empty = dataclasses.replace(attempt(), phases=(), ranks=())
    assert refit([empty], SHIPPED).coefficients is SHIPPED


def test_what_other_runs_taught_is_kept() -> None:
    first = refit([attempt(workload="other")], SHIPPED).coefficients
    second = refit([attempt(run_id="run-2")], first).coefficients
    assert second.generation == 2
    assert second.sources == ("run-1", "run-2")
    assert {s.workload for s in second.learnt.steps} == {"other", "train_digits"}
    old = next(s for s in first.learnt.steps)
    assert old in second.learnt.steps


def test_a_network_once_described_stays_known() -> None:
    first = refit([attempt()], SHIPPED).coefficients
    silent = dataclasses.replace(
        attempt(run_id="run-2"),
        phases=tuple(
            Phase(name=p.name, seconds=p.seconds, at_s=p.at_s, numbers={})
            for p in attempt().phases
        ),
    )
    (model,) = refit([silent], first).coefficients.learnt.models
    assert model.parameters == 77_850


def test_refit_is_deterministic_and_the_order_of_runs_does_not_matter() -> None:
    runs = [
        attempt(run_id=f"run-{i}", nodes=n, step_s=0.1 + 0.01 * n, noise=0.1, seed=i)
        for i, n in enumerate((1, 2, 4, 8, 2, 1))
    ]
    text = coefficients_to_json(refit(runs, SHIPPED).coefficients)
    assert coefficients_to_json(refit(runs, SHIPPED).coefficients) == text
    assert coefficients_to_json(refit(runs[::-1], SHIPPED).coefficients) == text
    assert coefficients_from_json(text, source="x") == refit(runs, SHIPPED).coefficients


def test_plans_without_a_basis_still_teach() -> None:
    """Logs of plans that an older sbtrain wrote."""
    old = dataclasses.replace(attempt(), plan=dataclasses.replace(example_plan()))
    result = refit([old], SHIPPED)
    assert learnt_step(result).compute_s == pytest.approx(0.2, rel=0.05)
    assert result.refused == ()


CLUSTER = ClusterShape(
    name="test",
    source="test.toml",
    partitions=(
        Partition(
            name="batch",
            nodes=4,
            max_nodes_per_job=4,
            cores_per_node=4,
            memory_gib_per_node=15,
            scratch_path="/tmp/%n",
        ),
    ),
    shared_bytes_s=1e9,
    shared_client_bytes_s=5e8,
)


def plan_digits(coefficients: Coefficients, *, layout: str) -> tuple[Plan, tuple[str, ...]]:
    request = Request(
        script="train_digits.py",
        workload="digits",
        steps=400,
        batch_per_worker=32,
        layout="ps" if layout == "ps" else "allreduce",
        nodes=NodeRange(low=3, high=3),
        data=DataSet(paths=("/d",), total_bytes=500_000),
        resumable=True,
    )
    decision = plan_request(request, CLUSTER, coefficients, run_id="r", run_dir="/r")
    assert decision.chosen is not None
    return decision.chosen, decision.notes


@pytest.mark.parametrize("layout", ["allreduce", "ps"])
def test_plan_run_refit_plan_again(tmp_path: Path, layout: str) -> None:
    """The whole ring, through a real timing log: the second plan comes nearer."""
    cold, notes = plan_digits(SHIPPED, layout=layout)
    assert any("never run before" in note for note in notes)
    path = tmp_path / "attempts/1/timings.h5"
    with TimingLog.create(path, plan=cold, attempt=1) as log:
        log.phase("stage", 3.1, at_s=1.0, size_bytes=500_000)
        log.phase("start", 14.0, at_s=4.5, rank=0, parameters=33_000, tensors=6)
        log.steps(0, 1, [2.5, *[0.031] * 399], 32)
        log.phase("checkpoint", 0.09, at_s=31.0, size_bytes=410_000, step=400)
    result = refit([read_timing_log(path)], SHIPPED)
    warm, notes = plan_digits(result.coefficients, layout=layout)
    assert not any("never run before" in note or "assumed" in note for note in notes)
    assert warm.coefficients == "generation 1"
    measured = 3.1 + (18.5 - 3.1) + (2.5 - 0.031) + 400 * 0.031 + 0.09

    def off(plan: Plan) -> float:
        return abs(plan.prediction.total_s - measured) / measured

    assert off(warm) < off(cold)
    assert off(warm) < 0.1
    assert warm.prediction.step_s == pytest.approx(0.031, rel=0.05)
    for term, (before, after) in errors(result).items():
        assert after < before, term


def test_a_start_counts_from_the_attempts_begin() -> None:
    """srun and the meeting of agents lie between the two, in no phase of their own."""
    plain = attempt(start_s=9.0)
    late = [
        dataclasses.replace(phase, at_s=phase.at_s + (4.0 if phase.name == "start" else 0.0))
        for phase in plain.phases
    ]
    run = dataclasses.replace(plain, phases=tuple(late))
    (start,) = [s for s in measure_attempts((run,)).samples if s.term == "start"]
    assert start.seconds == pytest.approx(7.0 + 0.5 + 4.0 + 1.5, abs=0.01)
