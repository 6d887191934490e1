"""How long synchronous all-reduce training takes for one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sbtrain_perf.models import Numbers

# Our fit on the even placements of the Pollux step times (six workloads on 1, 2, 3, 4 and 6
# nodes of 1 to 4 T4, PyTorch DDP with NCCL over TCP): two nodes stand apart from more, and
# GPUs that share a node's link take longer together.
IN_A_RING_OF_3 = 4.0 / 3.0
TWO_NODES, TWO_NODES_GPUS = 1.07, 0.5
MORE_NODES, MORE_NODES_GPUS = 0.45, 0.27


def transfer_s(parameters: Numbers, *, link_bytes_s: Numbers, efficiency: float) -> Numbers:
    """Seconds that the gradients (4 bytes a parameter) take over one node's link."""
    return 4.0 * parameters / (link_bytes_s * efficiency)


def link_loads(gpus: Numbers) -> tuple[Numbers, Numbers]:
    """How often a step moves the gradients over one node's link: on two nodes, and on three.

    `4/3 1.07 gpus^0.5` and `4/3 gpus^0.27`: on three nodes of one GPU what a ring moves
    (2 (n-1)/n: Patarasuk and Yuan, 2009). gpus: of each node, 0 counts as 1.
    """
    each = np.maximum(gpus, 1.0)
    return (
        IN_A_RING_OF_3 * TWO_NODES * each**TWO_NODES_GPUS,
        IN_A_RING_OF_3 * each**MORE_NODES_GPUS,
    )


def transfers(nodes: Numbers, *, loads: tuple[Numbers, Numbers]) -> Numbers:
    """As link_loads, on so many nodes: times `1 + 0.45 log(nodes / 3)` from three on; 0 on
    one."""
    two, three = loads
    more = three * (1.0 + MORE_NODES * np.log(np.maximum(nodes, 3.0) / 3.0))
    return np.asarray(np.where(nodes > 2.0, more, np.where(nodes == 2.0, two, 0.0)))


def hops(nodes: Numbers) -> Numbers:
    """Of a ring, there and back."""
    return 2.0 * (nodes - 1.0)


def step_s(
    compute_s: Numbers,
    transfer_s: Numbers,
    hop_s: Numbers,
    *,
    nodes: Numbers,
    loads: tuple[Numbers, Numbers],
    sharpness: float,
) -> Numbers:
    """Seconds of one synchronous step on `nodes` nodes, one worker a node; loads: link_loads.

    `(compute^g + (transfers transfer)^g + (hops hop)^g)^(1/g)`: communication hides behind
    computing as far as the longer of the two lets it; g = sharpness, 1 where nothing overlaps.
    Our own form; from runs on one and two nodes it predicts three to six within 9 %, a sum of
    compute and a ring within 35 % (Pollux step times).
    """
    moved_s = transfers(nodes, loads=loads) * transfer_s
    hopped_s = hops(nodes) * hop_s
    powers = compute_s**sharpness + moved_s**sharpness + hopped_s**sharpness
    seconds: Numbers = powers ** (1.0 / sharpness)
    return seconds
