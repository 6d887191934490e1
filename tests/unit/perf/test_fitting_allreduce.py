"""All-reduce over workloads: the form's limits, and what few measurements suffice for."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from sbtrain_perf.fitting.allreduce import AllReduceModel, StepRows
from sbtrain_perf.fitting.allreduce_intervals import IntervalFactors, calibrate
from sbtrain_perf.models.overlap import PLACEMENT_COEFFICIENTS, placement_features, step_s

WORKLOADS = {"small": (0.02, 1e-3, 0.05), "large": (0.10, 4e-3, 0.30)}


def made_rows(*, noise: float = 0.02) -> StepRows:
    """Two workloads on every placement up to 5 nodes of 2 GPUs, from the form itself."""
    generator = np.random.default_rng(3)
    shapes = [
        "".join(map(str, gpus))
        for nodes in range(1, 6)
        for gpus in itertools.combinations_with_replacement((1, 2, 3), nodes)
    ]
    cells = [(w, s, b) for w in WORKLOADS for s in shapes for b in (16.0, 64.0, 256.0)]
    gpus = [[int(digit) for digit in shape] for _, shape, _ in cells]
    nodes = np.array([float(len(one)) for one in gpus])
    replicas = np.array([float(sum(one)) for one in gpus])
    most, fewest = (np.array([float(f(one)) for one in gpus]) for f in (max, min))
    fixed, per_sample, scale = (
        np.array([WORKLOADS[name][i] for name, _, _ in cells]) for i in range(3)
    )
    batch = np.array([b for _, _, b in cells])
    compute = fixed + per_sample * batch
    features = placement_features(
        nodes=nodes, replicas=replicas, most_gpus=most, fewest_gpus=fewest
    )
    sync = np.where(
        replicas > 1, scale * np.exp(features @ np.array(PLACEMENT_COEFFICIENTS)), 0
    )
    step = step_s(compute, sync, forward_share=0.35, sharpness=4.0)
    step *= np.exp(noise * generator.standard_normal(len(cells)))
    return StepRows(
        workload=np.array([name for name, _, _ in cells]),
        shape=np.array([shape for _, shape, _ in cells]),
        nodes=nodes,
        replicas=replicas,
        most_gpus=most,
        fewest_gpus=fewest,
        batch=batch,
        step_s=np.asarray(step),
        sync_s=np.maximum(step - compute, 1e-4),
    )


def mape(predicted: np.ndarray, measured: np.ndarray) -> float:
    return float(100 * np.mean(np.abs(predicted / measured - 1)))


def test_limits_of_the_overlap() -> None:
    assert step_s(1.0, 0.0, forward_share=0.3, sharpness=4.0) == pytest.approx(1.0)
    assert step_s(1.0, 9.0, forward_share=0.3, sharpness=4.0) == pytest.approx(9.3, rel=1e-3)
    assert step_s(1.0, 0.5, forward_share=0.3, sharpness=1.0) == pytest.approx(1.5)
    assert step_s(1.0, 0.5, forward_share=0.3, sharpness=200.0) == pytest.approx(1.0, rel=1e-3)


def test_a_new_workload_needs_few_measurements() -> None:
    rows = made_rows()
    new = rows.workload == "large"
    few = new & ((rows.nodes == 1) | (rows.replicas == rows.nodes)) & (rows.nodes <= 3)
    assert few.sum() < 20
    asked = rows.where(new & ~few)
    predicted = AllReduceModel(rows.where(~new | few)).predict(asked)
    assert mape(predicted.step_s, asked.step_s) < 5.0


def test_an_interval_widens_beyond_the_measured_nodes() -> None:
    rows = made_rows()
    model = AllReduceModel(rows.where(rows.nodes <= 3))
    near = model.predict(rows.where(rows.nodes == 3)).log_sd.mean()
    far = model.predict(rows.where(rows.nodes == 5)).log_sd.mean()
    assert far > 1.1 * near


def test_calibrated_intervals_cover_rows_left_out() -> None:
    rows = made_rows(noise=0.05)
    held = np.random.default_rng(0).random(len(rows)) < 0.2
    known, asked = rows.where(~held), rows.where(held)
    model = AllReduceModel(known)
    predicted = model.predict(asked)
    reach = calibrate(known).of(model, asked) * predicted.log_sd
    inside = np.abs(np.log(asked.step_s / predicted.step_s)) <= reach
    assert 0.8 <= inside.mean() <= 1.0


def test_factors_follow_what_is_asked() -> None:
    rows = made_rows()
    model = AllReduceModel(rows.where(rows.nodes <= 4))
    factors = IntervalFactors(between=1.0, beyond=2.0, sparse=3.0)
    given = factors.of(model, rows)
    assert set(given[rows.nodes <= 4]) == {1.0}
    assert set(given[rows.nodes == 5]) == {2.0}


def test_nothing_measured_is_refused() -> None:
    rows = made_rows()
    with pytest.raises(ValueError, match="no measured steps"):
        AllReduceModel(rows.where(np.zeros(len(rows), dtype=bool)))
