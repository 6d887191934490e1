"""Partitions whose nodes hold several types of GPU: one type, or any nodes."""

from __future__ import annotations

import dataclasses

import pytest
from decisions import chosen_row, cluster, decide, partition, request

from sbtrain_perf.decision import Decision
from sbtrain_perf.request import GpuGroup, GpuType, ModelShape, NodeRange, Partition

SLOW = GpuType(name="slow", peak_tflops=4.0, memory_gib=12, memory_bytes_s=2.4e11)
FAST = GpuType(name="fast", peak_tflops=12.0, memory_gib=16, memory_bytes_s=7.2e11)


def pools() -> tuple[Partition, Partition, Partition]:
    """4 nodes of one GPU each, two of either type, and all of them."""
    slow = partition("p:slow", nodes=2, max_nodes_per_job=2, gpu=SLOW, gpus_per_node=1)
    fast = dataclasses.replace(slow, name="p:fast", gpu=FAST, gres="gpu:fast:1")
    slow = dataclasses.replace(slow, gres="gpu:slow:1")
    mixed = dataclasses.replace(
        slow,
        name="p:mixed",
        nodes=4,
        max_nodes_per_job=4,
        gres="gpu:1",
        mix=tuple(GpuGroup(gpu=g, nodes=2, gpus_per_node=1) for g in (SLOW, FAST)),
    )
    return slow, fast, mixed


def step_s(decision: Decision, name: str, *, nodes: int, servers: int) -> float:
    (row,) = [
        r for r in decision.rows if (r.partition, r.nodes, r.servers) == (name, nodes, servers)
    ]
    assert row.prediction is not None
    return row.prediction.step_s


def test_servers_add_speeds_up_and_all_reduce_goes_at_the_slowests_pace() -> None:
    model = ModelShape(parameters=1000, tensors=2)  # nothing to send
    decision = decide(request(model=model, batch_per_worker=4096), cluster(*pools()))

    def alone(name: str) -> float:
        return step_s(decision, name, nodes=2, servers=1)  # one worker

    slow, fast, mixed = alone("p:slow"), alone("p:fast"), alone("p:mixed")
    assert fast < slow / 1.5
    assert mixed == pytest.approx(2 / (1 / slow + 1 / fast), rel=0.01)
    ring = step_s(decision, "p:mixed", nodes=2, servers=0)
    assert ring == step_s(decision, "p:slow", nodes=2, servers=0)


def test_a_mix_is_taken_where_it_is_faster_and_said_to_be_one() -> None:
    shape = cluster(*pools())
    asked = request(layout="ps", servers=1, nodes=NodeRange(low=2))
    decision = decide(asked, shape)
    assert chosen_row(decision).partition == "p:mixed"
    assert decision.chosen is not None
    assert decision.chosen.gres == "gpu:1"
    assert any("2 of slow, 2 of fast), at the mean of" in note for note in decision.notes)
    ring = decide(request(layout="allreduce", batch_per_worker=4096), shape)
    assert chosen_row(ring).partition == "p:fast"  # 2 fast ones beat 4 at the slow pace
    assert ring.chosen is not None
    assert ring.chosen.gres == "gpu:fast:1"


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (("--gres=gpu:fast:1",), "p:fast"),
        (("-G", "slow:2", "--gres", "gpu:slow:1"), "p:slow"),
        (("--gres=gpu:1",), "p:mixed"),
    ],
)
def test_the_users_own_gres_binds_the_type(options: tuple[str, ...], left: str) -> None:
    decision = decide(request(sbatch_options=options, partition="p"), cluster(*pools()))
    assert {r.partition for r in decision.rows if r.prediction} == {left}
