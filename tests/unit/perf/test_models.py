"""The closed forms: values worked out by hand, limits, and growth with nodes."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sbtrain_perf.models.allreduce import link_loads, step_s, transfer_s, transfers
from sbtrain_perf.models.checkpoint import checkpoint_s, interval_s
from sbtrain_perf.models.parameter_server import server_s, update_s
from sbtrain_perf.models.preemption import restarted_s, resumed_s
from sbtrain_perf.models.staging import pipelined_s, shared_read_s
from sbtrain_perf.models.startup import start_s

NODES = np.arange(1.0, 65.0)


def test_communication_hides_behind_computing_as_far_as_the_longer_lets_it() -> None:
    transfer = transfer_s(1e6, link_bytes_s=1e9, efficiency=0.5)
    assert transfer == pytest.approx(0.008)
    one = {"loads": link_loads(1.0), "sharpness": 2.0}
    assert step_s(1.0, transfer, 0.001, nodes=1.0, **one) == 1.0
    three = step_s(0.01, transfer, 0.001, nodes=3.0, **one)
    assert three == pytest.approx(math.sqrt(0.01**2 + (4 / 3 * 0.008) ** 2 + 0.004**2))
    apart = step_s(0.01, transfer, 0.0, nodes=3.0, loads=link_loads(1.0), sharpness=1.0)
    assert apart == pytest.approx(0.01 + 4 / 3 * 0.008)


def test_two_nodes_stand_apart_and_gpus_share_a_nodes_link() -> None:
    alone, four = (transfers(NODES, loads=link_loads(gpus)) for gpus in (0.0, 4.0))
    assert alone[0] == four[0] == 0.0
    assert alone[2] == pytest.approx(4 / 3)  # as a ring
    assert alone[1] > alone[2]
    assert four[1] / alone[1] == pytest.approx(2.0)
    assert four[5] / alone[5] == pytest.approx(4**0.27)
    assert alone[47] - alone[23] == pytest.approx(alone[23] - alone[11])  # by doubling


def test_a_step_grows_from_three_nodes_on() -> None:
    for gpus in (1.0, 8.0):
        steps = step_s(0.1, 0.02, 1e-4, nodes=NODES, loads=link_loads(gpus), sharpness=2.0)
        assert np.all(np.diff(np.asarray(steps)[2:]) >= 0.0)
        assert steps[0] <= np.min(steps)


def test_servers_saturate_at_the_capacity_that_they_share() -> None:
    one = server_s(1e6, 100.0, tensor_s=1e-4, parameter_byte_s=1e-9)
    assert one == pytest.approx(0.01 + 0.004)
    few = update_s(1.0, one, workers=2.0, share=1.0, sharpness=6.0)
    many = update_s(1.0, one, workers=1e6, share=0.5, sharpness=6.0)
    assert few == pytest.approx(0.5, rel=1e-3)
    assert many == pytest.approx(one / 2.0, rel=1e-3)


def test_staging_in_a_pipeline_grows_by_one_chunk_a_node() -> None:
    arguments = {"link_bytes_s": 1e9, "chunk_bytes": 4e6, "overhead_s": 1.0}
    one = pipelined_s(1e9, nodes=1.0, rate_bytes_s=5e8, **arguments)
    many = pipelined_s(1e9, nodes=101.0, rate_bytes_s=5e8, **arguments)
    assert one == pytest.approx(3.0)
    assert many - one == pytest.approx(0.4)
    assert pipelined_s(0.0, nodes=8.0, rate_bytes_s=5e8, **arguments) == 0.0


def test_shared_reads_grow_with_nodes_once_the_filesystem_is_full() -> None:
    seconds = shared_read_s(1e9, nodes=NODES, client_bytes_s=5e8, shared_bytes_s=2e9)
    assert seconds[3] == pytest.approx(2.0)
    assert seconds[7] == pytest.approx(4.0)


def test_the_checkpoint_interval_is_youngs_for_small_checkpoints() -> None:
    assert checkpoint_s(2e8, fixed_s=3.75, byte_s=2e-8) == pytest.approx(7.75)
    assert interval_s(0.01, 1e-5) == pytest.approx(math.sqrt(2 * 0.01 / 1e-5), rel=1e-3)
    assert interval_s(100.0, 1.0) == 100.0


def test_a_resumed_run_pays_its_losses_and_may_never_end() -> None:
    assert resumed_s(100.0, lost_share=0.2) == pytest.approx(125.0)
    assert resumed_s(100.0, lost_share=1.0) == math.inf


def test_a_restarted_run_follows_the_exponential() -> None:
    assert restarted_s(100.0, hazard_1_s=0.0, restart_s=10.0) == 100.0
    assert restarted_s(100.0, hazard_1_s=0.01, restart_s=0.0) == pytest.approx(
        100.0 * (math.e - 1.0)
    )


def test_restarting_anew_agrees_with_simulation() -> None:
    random = np.random.default_rng(7)
    totals = []
    for _ in range(4000):
        total = 0.0
        while (life := random.exponential(200.0)) < 150.0:
            total += life + 20.0
        totals.append(total + 150.0)
    expected = restarted_s(150.0, hazard_1_s=1 / 200.0, restart_s=20.0)
    assert np.mean(totals) == pytest.approx(float(expected), rel=0.05)


def test_forms_grow_with_nodes_as_the_planner_assumes() -> None:
    """The planner's bounds are exact only while this holds."""
    rising = [
        start_s(NODES, fixed_s=10.0, node_s=0.1),
        shared_read_s(1e9, nodes=NODES, client_bytes_s=5e8, shared_bytes_s=2e9),
        pipelined_s(
            1e9,
            nodes=NODES,
            rate_bytes_s=5e8,
            link_bytes_s=1e9,
            chunk_bytes=4e6,
            overhead_s=1.0,
        ),
    ]
    assert all(np.all(np.diff(np.asarray(curve)) >= 0.0) for curve in rising)
    updates = update_s(0.1, 0.02, workers=NODES, share=2.0**-0.48, sharpness=5.8)
    assert np.all(np.diff(np.asarray(updates)) <= 0.0)
