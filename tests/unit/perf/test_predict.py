"""Which terms a prediction takes: learnt ones of the workload where there are any."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from attempts import example_step, synchronous_s

from sbtrain_perf.coefficients import (
    Coefficients,
    Learnt,
    LearntCheckpoint,
    LearntModel,
    LearntStage,
    LearntStart,
    load_coefficients,
    with_learnt,
)
from sbtrain_perf.job import job_of
from sbtrain_perf.predict import Candidates, Predictor
from sbtrain_perf.request import ClusterShape, DataSet, Layout, Partition, Prediction, Request
from sbtrain_perf.terms import PartitionTerms, terms_of

SMALL = Partition(
    name="small",
    nodes=8,
    max_nodes_per_job=8,
    cores_per_node=8,
    memory_gib_per_node=64,
    scratch_path="/tmp/%n",
)
LARGE = dataclasses.replace(SMALL, name="large", cores_per_node=32, network_bytes_s=5e9)
SHAPE = ClusterShape(
    name="test",
    source="test.toml",
    partitions=(SMALL, LARGE),
    shared_bytes_s=2e9,
    shared_client_bytes_s=1e9,
)
REQUEST = Request(
    script="train.py",
    workload="digits",
    steps=1000,
    batch_per_worker=64,
    data=DataSet(paths=("/d",), total_bytes=10**9),
    resumable=True,
)
STEP = example_step()


def learnt(**parts: object) -> Coefficients:
    return with_learnt(load_coefficients(), dataclasses.replace(Learnt(), **parts), ("run-1",))


def predict(
    coefficients: Coefficients,
    *,
    partition: Partition = SMALL,
    layout: Layout = "allreduce",
    nodes: int = 4,
    request: Request = REQUEST,
    shape: ClusterShape = SHAPE,
) -> Prediction:
    job = job_of(request, coefficients)
    finder = PartitionTerms(shape, job, coefficients)
    predictor = Predictor(job, shape, coefficients.base, terms_of([partition], finder, {}))
    servers = 1 if layout == "ps" else 0
    return predictor.forecast(Candidates.single(0, nodes=nodes, servers=servers)).prediction(0)


def test_a_learnt_step_is_predicted_from_its_own_terms() -> None:
    step = predict(learnt(steps=(STEP,))).step_s
    assert step == pytest.approx(synchronous_s(0.5, 0.08, 0.01, nodes=4))


def test_another_partition_scales_by_what_the_models_say_of_both() -> None:
    shipped = load_coefficients()
    one = predict(shipped, partition=SMALL, nodes=1).step_s
    other = predict(shipped, partition=LARGE, nodes=1).step_s
    step = predict(learnt(steps=(STEP,)), partition=LARGE).step_s
    assert step == pytest.approx(synchronous_s(0.5 * other / one, 0.08 / 4, 0.01, nodes=4))


def test_another_batch_scales_by_what_the_models_say_of_both() -> None:
    double = dataclasses.replace(REQUEST, batch_per_worker=128)
    shipped = load_coefficients()
    ratio = predict(shipped, nodes=1, request=double).step_s / predict(shipped, nodes=1).step_s
    step = predict(learnt(steps=(STEP,)), nodes=1, request=double).step_s
    assert 1.5 < ratio < 2.0
    assert step == pytest.approx(0.5 * ratio)


def test_the_other_layout_takes_over_the_computing_alone() -> None:
    cold = predict(load_coefficients(), layout="ps", nodes=2)
    warm = predict(learnt(steps=(STEP,)), layout="ps", nodes=2)
    assert warm.step_s == pytest.approx(0.5, rel=1e-3)
    assert cold.step_s != pytest.approx(warm.step_s, rel=0.1)


def test_other_workloads_and_clusters_learn_nothing_from_it() -> None:
    cold = predict(load_coefficients())
    for change in ({"workload": "other"}, {"cluster": "elsewhere"}):
        other = dataclasses.replace(STEP, **change)
        assert predict(learnt(steps=(other,))) == cold


def test_a_partition_that_the_site_no_longer_has_still_teaches() -> None:
    gone = dataclasses.replace(STEP, partition="gone")
    assert predict(learnt(steps=(gone,)), nodes=1).step_s == pytest.approx(0.5)


def test_start_stage_and_checkpoint_are_taken_as_learnt() -> None:
    warm = predict(
        learnt(
            starts=(
                LearntStart(
                    cluster="test", workload="digits", fixed_s=7.0, node_s=0.5, runs=()
                ),
            ),
            stages=(
                LearntStage(
                    cluster="test", partition="small", overhead_s=3.0, rate_bytes_s=1e8, runs=()
                ),
            ),
            checkpoints=(LearntCheckpoint(cluster="test", fixed_s=2.0, byte_s=1e-8, runs=()),),
            models=(
                LearntModel(
                    workload="digits", parameters=10**6, tensors=50, checkpoint_bytes=3 * 10**8
                ),
            ),
        )
    )
    assert warm.start_s == pytest.approx(7.0 + 4 * 0.5)
    assert warm.stage_s == pytest.approx(3.0 + 10.0, rel=1e-2)
    assert warm.checkpoint_s == pytest.approx(2.0 + 3.0)


def test_a_layout_that_never_ran_starts_like_the_other() -> None:
    start = LearntStart(
        cluster="test", workload="digits", layout="ps", fixed_s=20.0, node_s=1.0, runs=()
    )
    other = dataclasses.replace(start, layout="allreduce", fixed_s=3.0)
    older = dataclasses.replace(start, layout=None, fixed_s=9.0)
    for known, ring, served in (
        ((start,), 24.0, 24.0),
        ((start, other), 7.0, 24.0),
        ((older,), 13.0, 13.0),
        ((start, older), 13.0, 24.0),
    ):
        coefficients = learnt(starts=known)
        assert predict(coefficients).start_s == pytest.approx(ring)
        assert predict(coefficients, layout="ps").start_s == pytest.approx(served)


def test_a_learnt_network_stands_in_for_the_assumed_one() -> None:
    model = LearntModel(workload="digits", parameters=77_850, tensors=30)
    job = job_of(REQUEST, learnt(models=(model,)))
    assert (job.parameters, job.tensors, job.parameters_known) == (77_850, 30, True)
    assert job.assumptions == ()


def test_many_candidates_at_once_are_the_same_as_one_by_one() -> None:
    coefficients = load_coefficients()
    job = job_of(REQUEST, coefficients)
    finder = PartitionTerms(SHAPE, job, coefficients)
    predictor = Predictor(
        job, SHAPE, coefficients.base, terms_of(SHAPE.partitions, finder, {"large": 9.0})
    )
    keys = [(p, s, n) for p in (0, 1) for s in (0, 1, 3) for n in (s + 1, 8)]
    columns = np.array(keys).T
    together = predictor.forecast(
        Candidates(partition=columns[0], servers=columns[1], low=columns[2], high=columns[2])
    )
    for at, (p, s, n) in enumerate(keys):
        one = predictor.forecast(Candidates.single(p, nodes=n, servers=s))
        assert together.prediction(at) == one.prediction(0)
        assert together.queue_s[at] == 9.0 * p


def test_staging_is_as_fast_as_its_slowest_part() -> None:
    coefficients = load_coefficients()
    job = job_of(REQUEST, coefficients)
    finder = PartitionTerms(SHAPE, job, coefficients)
    assert finder.basis(SMALL).stage_bytes_s == SMALL.scratch_bytes_s
    fast = dataclasses.replace(SMALL, scratch_bytes_s=1e10, network_bytes_s=2e8)
    assert finder.basis(fast).stage_bytes_s == 2e8
    wide = dataclasses.replace(SMALL, scratch_bytes_s=1e10, network_bytes_s=1e10)
    assert finder.basis(wide).stage_bytes_s == SHAPE.shared_client_bytes_s
    bare = dataclasses.replace(SMALL, scratch_path=None)
    assert finder.basis(bare).stage_bytes_s == 0.0
