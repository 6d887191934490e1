"""Closed forms of step time, parameter servers and the networks behind them."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbtrain_perf.gpu_figures import PUBLISHED_GPUS
from sbtrain_perf.models import parameter_server as ps
from sbtrain_perf.models.residual_network import (
    CLASSES,
    RESNET_WIDTHS,
    ResidualNetwork,
    recognise,
)
from sbtrain_perf.models.step_time import StepTerms, speed_ratio, step_s

positive = st.floats(1e-3, 1e3)


@given(demand=positive, shared_s=positive, sharpness=st.floats(1.0, 20.0))
def test_speed_stays_under_both_bounds(
    demand: float, shared_s: float, sharpness: float
) -> None:
    speed = ps.updates_1_s(demand, shared_s, sharpness=sharpness)
    lower = min(demand, 1.0 / shared_s)
    assert speed <= lower * (1 + 1e-9)
    assert speed >= lower * 2.0 ** (-1.0 / sharpness) * (1 - 1e-9)


def simulated_updates_1_s(workers: int, variation: float) -> float:
    """A closed queue: workers compute for 0.75 s, one server serves each for 0.25 s."""
    random = Random(5)

    def seconds(mean: float, cv: float) -> float:
        return random.gammavariate(cv**-2, mean * cv**2)

    ready = [random.random() for _ in range(workers)]
    heapq.heapify(ready)
    free = start = 0.0
    for served in range(12_000):
        free = max(free, heapq.heappop(ready)) + seconds(0.25, variation)
        heapq.heappush(ready, free + seconds(0.75, 0.05))
        if served == 2_000:
            start = free
    return 9_999 / (free - start)


@pytest.mark.parametrize(("variation", "sharpness"), [(1.0, 3.0), (0.3, 8.0), (0.1, 22.0)])
def test_form_follows_a_simulated_queue(variation: float, sharpness: float) -> None:
    for workers in range(1, 9):
        form = ps.updates_1_s(workers / 1.0, 0.25, sharpness=sharpness)
        assert form == pytest.approx(simulated_updates_1_s(workers, variation), rel=0.05)


@given(workers=st.integers(1, 64), compute_s=positive, server=positive)
def test_update_s_is_the_inverse_of_the_speed(
    workers: int, compute_s: float, server: float
) -> None:
    period = ps.update_s(compute_s, server, workers=workers, share=2.0**-0.5, sharpness=6.0)
    shared = ps.shared_server_s(server, servers=2, sharing=0.5)
    speed = ps.updates_1_s(workers / compute_s, shared, sharpness=6.0)
    assert period * speed == pytest.approx(1.0)


@given(workers=st.integers(1, 200))
def test_more_workers_never_slow_the_servers(workers: int) -> None:
    def speed(count: int) -> float:
        return float(ps.updates_1_s(count / 0.1, 0.02, sharpness=7.0))

    assert speed(workers + 1) >= speed(workers)


def test_two_servers_take_their_share_off_a_lone_workers_step() -> None:
    cycle = ps.cycle_s(0.219, 0.024, 0.013, waiting=1.0)
    assert cycle == pytest.approx(0.208)
    assert ps.cycle_s(0.219, 0.024, 0.024, waiting=1.0) == pytest.approx(0.219)
    assert ps.cycle_s(0.03, 1.0, 0.0, waiting=1.0) == pytest.approx(0.01)


def test_latency_costs_round_trips_and_for_large_networks_windows() -> None:
    def added(parameters: float) -> float:
        return float(
            ps.latency_s(parameters, round_trip_s=0.03, fewest_rounds=2.5, window_bytes=4.7e6)
        )

    assert added(700_000) == pytest.approx(0.075)
    assert added(26_000_000) == pytest.approx(1.33, rel=0.01)


def test_variables_in_turn_fall_on_servers_by_their_period() -> None:
    kernels_and_biases = (900, 100) * 10
    assert ps.shard_shares(kernels_and_biases, 2) == [(0.5, 0.9), (0.5, 0.1)]
    shares = ps.shard_shares(kernels_and_biases, 3)
    assert sum(tensors for tensors, _ in shares) == pytest.approx(1.0)
    assert max(elements for _, elements in shares) < 0.45
    assert ps.shard_shares((5, 6), 3)[2] == (0.0, 0.0)


@given(
    blocks=st.tuples(*[st.integers(1, 12)] * 3),
)
def test_a_residual_network_is_recognised_by_its_counts(blocks: tuple[int, int, int]) -> None:
    network = ResidualNetwork(blocks=blocks, widths=RESNET_WIDTHS, branches=1)
    statistics = 2 * sum(size for size in _moving(network))
    parameters = sum(network.variables) - statistics + 1696
    found = recognise(parameters, 14 + 6 * sum(blocks))
    assert found == network


def _moving(network: ResidualNetwork) -> list[int]:
    """Widths of the batch norms: each has a moving mean and a moving variance."""
    widths = [16]
    for count, width in zip(network.blocks, network.widths, strict=True):
        widths += [width] * (2 * count + 1)
    return widths


def test_shake_shake_places_all_kernels_on_every_second_server() -> None:
    network = ResidualNetwork(blocks=(4, 4, 4), widths=(32, 64, 128), branches=2)
    elements = [share for _, share in ps.shard_shares(network.variables, 2)]
    assert max(elements) > 0.99
    plain = ResidualNetwork(blocks=(5, 5, 5), widths=RESNET_WIDTHS, branches=1)
    assert max(share for _, share in ps.shard_shares(plain.variables, 2)) < 0.55
    assert network.variables[-1] == CLASSES


def test_counts_of_no_known_family_are_not_recognised() -> None:
    assert recognise(25_557_032, 161) is None
    assert recognise(7, 3) is None


def test_batch_scales_work_and_not_the_fixed_part() -> None:
    terms = StepTerms(
        fixed_s=0.01, tensor_s=1e-4, activation_s=1e-5, parameter_s=1e-8, batch=128
    )
    half = step_s(1e6, 100.0, batch=64, terms=terms)
    full = step_s(1e6, 100.0, batch=128, terms=terms)
    assert full - half == pytest.approx(half - 0.02)


def test_relative_speed_of_gpus() -> None:
    k80, p100, v100 = (PUBLISHED_GPUS[name] for name in ("K80", "P100", "V100"))
    assert speed_ratio(p100, k80) == pytest.approx(2.54, rel=0.01)
    assert 1.2 < speed_ratio(v100, p100) < 1.65
    assert speed_ratio(k80, k80) == 1.0
    assert math.isclose(speed_ratio(p100, k80) * speed_ratio(k80, p100), 1.0, rel_tol=0.15)
    twice = replace(k80, peak_tflops=2 * k80.peak_tflops, memory_bytes_s=2 * k80.memory_bytes_s)
    assert speed_ratio(twice, k80) == pytest.approx(2.0)
