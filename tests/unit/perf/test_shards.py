"""How an update falls on several parameter servers, and that predictions go by it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from attempts import attempt

from sbtrain_perf.coefficients import load_coefficients
from sbtrain_perf.job import job_of
from sbtrain_perf.measured import measure_attempts
from sbtrain_perf.predict import Candidates, Predictor
from sbtrain_perf.refit import refit
from sbtrain_perf.request import ClusterShape, Partition, Request
from sbtrain_perf.shards import MOST, server_shares, shard_numbers, told_shares
from sbtrain_perf.term_forms import form_of
from sbtrain_perf.terms import PartitionTerms, terms_of
from sbtrain_perf.timing_log import AttemptTimings

SHIPPED = load_coefficients()
EVEN = (9_732,) * 8  # the 77,850 parameters and 8 tensors of attempts.attempt
KERNELS_AND_BIASES = (19_400, 60) * 4


def told(variables: Sequence[int], **changes: object) -> AttemptTimings:
    run = attempt(layout="ps", **changes)
    start = next(phase for phase in run.phases if phase.name == "start")
    numbers = {**start.numbers, **shard_numbers(variables)}
    others = tuple(phase for phase in run.phases if phase is not start)
    return dataclasses.replace(
        run, phases=(*others, dataclasses.replace(start, numbers=numbers))
    )


def test_servers_take_variables_in_turn() -> None:
    assert shard_numbers(EVEN)["fullest_of_2"] == 0.5
    assert shard_numbers(EVEN)["fullest_of_3"] == 0.375
    assert shard_numbers(KERNELS_AND_BIASES)["fullest_of_2"] == pytest.approx(0.9969)
    assert max(shard_numbers((1,) * 40)) == max(f"fullest_of_{n}" for n in range(2, MOST + 1))
    for nothing in ((), (0, 0), (3, -1)):
        assert shard_numbers(nothing) == {}


def test_what_a_log_keeps_is_read_back() -> None:
    run = told(KERNELS_AND_BIASES, servers=1)
    assert told_shares(run) == tuple(shard_numbers(KERNELS_AND_BIASES).values())
    assert told_shares(attempt(layout="ps", servers=1)) == ()


def test_the_busiest_servers_share() -> None:
    base = SHIPPED.base
    network = {"parameters": 77_850.0, "tensors": 8.0, "base": base, "most": 20}
    unknown = server_shares((), **network)
    assert unknown[[0, 1]].tolist() == [1.0, 1.0]
    assert unknown[4] == pytest.approx(4.0**-base.server.sharing.value)
    even = server_shares(tuple(shard_numbers(EVEN).values()), **network)
    assert even[[1, 2, 4, 8]] == pytest.approx([1.0, 1 / 2, 1 / 4, 1 / 8])
    assert np.all(np.diff(even) <= 0.0)
    many = {**network, "parameters": 7.8e7}  # elements outweigh tensors
    uneven = server_shares(tuple(shard_numbers(KERNELS_AND_BIASES).values()), **many)
    assert uneven[2] == pytest.approx(0.99, abs=0.01)


def speed_up(variables: Sequence[int], *, parameters: float) -> float:
    """Predicted of a second server, from one run that its only server held back."""
    run = told(variables, servers=1, nodes=5, step_s=2.0)
    (start,) = [phase for phase in run.phases if phase.name == "start"]
    start.numbers["parameters"] = parameters
    learnt = refit([run], SHIPPED).coefficients
    partition = Partition(
        name=run.partition,
        nodes=16,
        max_nodes_per_job=16,
        cores_per_node=8,
        memory_gib_per_node=64,
    )
    shape = ClusterShape(
        name=run.cluster,
        source="",
        partitions=(partition,),
        shared_bytes_s=2e9,
        shared_client_bytes_s=1e9,
    )
    batch = run.plan.batch_per_worker
    job = job_of(Request(script="", workload=run.workload, batch_per_worker=batch), learnt)
    finder = PartitionTerms(shape, job, learnt)
    predictor = Predictor(job, shape, learnt.base, terms_of([partition], finder, {}))
    one, two = (
        predictor.forecast(Candidates.single(0, nodes=4 + servers, servers=servers)).step_s[0]
        for servers in (1, 2)
    )
    return float(one / two)


def test_a_second_server_is_worth_what_it_takes_off_the_first() -> None:
    assert speed_up(EVEN, parameters=7.8e7) == pytest.approx(2.0, rel=0.05)
    assert speed_up(KERNELS_AND_BIASES, parameters=7.8e7) == pytest.approx(1.0, rel=0.05)
    unknown = 2.0**SHIPPED.base.server.sharing.value
    assert speed_up((), parameters=7.8e7) == pytest.approx(unknown, rel=0.05)


def test_a_run_on_two_servers_is_learnt_from_by_its_own_shares() -> None:
    for variables, share in ((EVEN, 0.5), ((), 2.0**-SHIPPED.base.server.sharing.value)):
        run = told(variables, servers=2, nodes=5)
        (sample,) = [s for s in measure_attempts((run,)).samples if s.term == "step"]
        form = form_of(sample, SHIPPED.base)
        assert form.features[1] ** (1.0 / form.power) == pytest.approx(share, rel=1e-3)
