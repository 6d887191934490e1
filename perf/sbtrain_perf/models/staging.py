"""How long the data set takes to reach the nodes, before the first step.

Three forms, seconds from bytes and bytes a second. `pipelined_s` is what this product does;
`shared_read_s` what a partition without scratch does; `serialised_read_s` what Hashemi et al.
measured, a yardstick. Hashemi et al., "Performance Modeling of Distributed Deep Neural
Networks", arXiv 1612.00521: the printed equations were not to be had, both are our
reconstruction.
"""

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
    filesystem's. Our reconstruction of Hashemi et al.'s shared read, whose `D/B` is the case
    of a filesystem that keeps up.
    """
    return np.maximum(data_bytes / client_bytes_s, nodes * data_bytes / shared_bytes_s)


def serialised_read_s(
    data_bytes: Numbers, *, nodes: Numbers, client_bytes_s: Numbers, shared_bytes_s: Numbers
) -> Numbers:
    """The nodes read everything from the shared filesystem one after another.

    `n D/B`, B the rate of the one client that reads. Our reconstruction of Hashemi et al.'s
    serialised read.
    """
    return nodes * data_bytes / np.minimum(client_bytes_s, shared_bytes_s)
