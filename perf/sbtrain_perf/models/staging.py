"""How long the data set takes to reach the nodes, before the first step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sbtrain_perf.models import Numbers


def pipelined_s(
    data_bytes: Numbers,
    *,
    nodes: Numbers,
    rate_bytes_s: Numbers,
    link_bytes_s: Numbers,
    chunk_bytes: float,
    overhead_s: Numbers,
) -> Numbers:
    """Read once from the shared filesystem, forwarded from node to node in chunks.

    `overhead_s + D/rate + (n-1) chunk/link`: the last node ends one chunk a hop after the
    first. rate is that of the slowest stage: one client's read, the link, the scratch.
    Our reconstruction of our own engine.
    """
    moved = (data_bytes > 0) * 1.0
    chain_s = (nodes - 1.0) * np.minimum(chunk_bytes, data_bytes) / link_bytes_s
    return moved * (overhead_s + data_bytes / rate_bytes_s + chain_s)


def shared_read_s(
    data_bytes: Numbers,
    *,
    nodes: Numbers,
    client_bytes_s: Numbers,
    shared_bytes_s: Numbers,
) -> Numbers:
    """Every node reads everything from the shared filesystem at once (no local scratch).

    `max(D/client, n D/shared)`: one client's rate, until all clients together reach the
    filesystem's. In the limit this is Hashemi et al.'s serialised read `n D/B`
    (arXiv 1612.00521; the printed equation was not to be had: our reconstruction).
    """
    return np.maximum(data_bytes / client_bytes_s, nodes * data_bytes / shared_bytes_s)
