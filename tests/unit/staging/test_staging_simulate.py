"""The simulated chain agrees with what can be worked out by hand."""

from __future__ import annotations

import pytest

from sbtrain_staging.engine.schedule import chunk_size
from sbtrain_staging.engine.simulate import Rates, simulated_seconds

MIB = 1 << 20


def test_one_node_reads_at_the_rate_of_the_source() -> None:
    rates = Rates(source_bytes_per_s=10 * MIB, link_bytes_per_s=MIB)
    assert simulated_seconds(100 * MIB, 1, rates) == pytest.approx(10)


@pytest.mark.parametrize("nodes", [2, 3, 16, 64])
def test_a_chain_fills_once_and_then_runs_at_its_slowest_link(nodes: int) -> None:
    rates = Rates(source_bytes_per_s=10 * MIB, link_bytes_per_s=10 * MIB)
    hop_s = chunk_size(1024 * MIB, nodes) / (10 * MIB)
    expected = 102.4 + (nodes - 1) * hop_s
    assert simulated_seconds(1024 * MIB, nodes, rates) == pytest.approx(expected)


def test_a_slow_disk_holds_the_chain_up() -> None:
    fast = Rates(source_bytes_per_s=10 * MIB, link_bytes_per_s=10 * MIB)
    slow = Rates(
        source_bytes_per_s=10 * MIB, link_bytes_per_s=10 * MIB, scratch_bytes_per_s=5 * MIB
    )
    assert simulated_seconds(256 * MIB, 4, fast) == pytest.approx(25.6, rel=0.1)
    assert simulated_seconds(256 * MIB, 4, slow) == pytest.approx(51.2, rel=0.1)


def test_costs_per_node_are_added() -> None:
    rates = Rates(
        source_bytes_per_s=MIB, link_bytes_per_s=MIB, start_s=3.0, start_per_node_s=0.5
    )
    bare = Rates(source_bytes_per_s=MIB, link_bytes_per_s=MIB)
    grown = simulated_seconds(MIB, 8, rates) - simulated_seconds(MIB, 8, bare)
    assert grown == pytest.approx(7.0)
