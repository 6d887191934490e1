"""One synchronous step where gradients travel while the backward pass still computes.

Our own form. It differs from Pollux (Qiao et al., OSDI 2021) in three ways: only the
backward part of the computation can hide communication; two nodes are a regime of their
own; and what placement does to communication is shared by all workloads, so that a new
workload needs few measurements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sbtrain_perf.models import Numbers

    Floats = NDArray[np.float64]

# What multiplies the features of placement_features: the logarithm of a placement's
# synchronisation time relative to the workload's own scale.
PLACEMENT_TERMS = (
    "two_nodes",
    "two_nodes_gpus",
    "two_nodes_unevenness",
    "many_nodes",
    "many_nodes_nodes",
    "many_nodes_gpus",
    "many_nodes_unevenness",
    "many_nodes_fill",
    "one_node",
    "one_node_gpus",
)

# Our fit on the Pollux step times (16 nodes of 4 T4, 50 Gbit/s, PyTorch DDP with NCCL),
# six workloads on up to 6 nodes together. Dimensionless.
PLACEMENT_COEFFICIENTS = (0.67, 0.51, -0.15, 0.60, 0.35, 0.27, -0.27, 0.31, -1.22, 0.72)
OVERLAP_SHARPNESS = 4.3  # same fit


def placement_features(
    *, nodes: Floats, replicas: Floats, most_gpus: Floats, fewest_gpus: Floats
) -> Floats:
    """Features of placements, shape (rows, len(PLACEMENT_TERMS)), dimensionless.

    Args:
        nodes: nodes of the placement, shape (rows,).
        replicas: GPUs in all.
        most_gpus: GPUs used on the node that has most of them.
        fewest_gpus: GPUs used on the node that has fewest.
    """
    one = (nodes == 1).astype(float)
    two = (nodes == 2).astype(float)
    many = (nodes > 2).astype(float)
    unevenness = np.log(most_gpus / fewest_gpus)
    return np.stack(
        [
            two,
            two * np.log(most_gpus),
            two * unevenness,
            many,
            many * np.log(np.maximum(nodes, 3) / 3.0),
            many * np.log(most_gpus),
            many * unevenness,
            many * np.log(replicas / nodes / fewest_gpus),
            one,
            one * np.log(replicas),
        ],
        axis=1,
    )


def step_s(
    compute_s: Numbers, sync_s: Numbers, *, forward_share: Numbers, sharpness: Numbers
) -> Numbers:
    """Seconds of one step: `f C + (((1-f) C)^g + S^g)^(1/g)`.

    The forward share f of the computation C hides nothing; the backward share and the
    synchronisation S run side by side, and the longer one counts, with a knee of
    sharpness g (g = 1: no overlap; large g: perfect overlap).
    """
    backward_s = (1.0 - forward_share) * compute_s
    longer = np.maximum(backward_s, sync_s)
    shorter = np.minimum(backward_s, sync_s)
    return forward_share * compute_s + longer * (1.0 + (shorter / longer) ** sharpness) ** (
        1.0 / sharpness
    )
