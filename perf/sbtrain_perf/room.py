"""What may be weighed: the partitions that fit a request, and the lanes of node counts there.

Candidates are all partitions x (all-reduce, parameter servers 1..k) x node counts within
the bounds of request and partition. What does not fit is refused here, with the reason.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from sbtrain_perf.coefficients import Base
from sbtrain_perf.decision import Row
from sbtrain_perf.job import Job
from sbtrain_perf.limits import (
    fewest_servers,
    node_bounds,
    partition_refusal,
    servers_refusal,
    worker_refusal,
)
from sbtrain_perf.predict import Candidates
from sbtrain_perf.request import Layout, Partition
from sbtrain_perf.search import spread


def layout_of(servers: int) -> Layout:
    """0 servers stand for all-reduce."""
    return "ps" if servers else "allreduce"


def refused_row(partition: str, reason: str, *, nodes: int = 0, servers: int = 0) -> Row:
    return Row(
        partition=partition,
        nodes=nodes,
        layout=layout_of(servers),
        servers=servers,
        workers=max(nodes - servers, 0),
        prediction=None,
        rejected=reason,
    )


class Room:
    """What fits a job.

    Attributes:
        fit: partitions that may do; candidates index into it.
        lanes: ranges of node counts for each partition and number of servers that fit.
        refused: what does not fit.

    Args:
        aside: partitions that are not to be taken, with the reason.
    """

    def __init__(
        self,
        partitions: Sequence[Partition],
        job: Job,
        base: Base,
        *,
        aside: Mapping[str, str],
    ) -> None:
        self._job = job
        self._base = base
        self.refused: list[Row] = []
        self.fit: list[Partition] = []
        for partition in partitions:
            reason = partition_refusal(partition, job) or aside.get(partition.name)
            if reason is None:
                self.fit.append(partition)
            else:
                self.refused.append(refused_row(partition.name, reason))
        self.lanes = self._lanes()

    def refusal(self, partition: Partition, servers: int) -> str | None:
        """Why a layout does not do on a partition that fits; None when it does."""
        request, job = self._job.request, self._job
        layout = layout_of(servers)
        if request.layout not in ("auto", layout) or (request.servers or servers) != servers:
            return "not the layout that was asked for"
        reason = worker_refusal(partition, job, self._base, layout=layout)
        if reason is None and servers:
            high = node_bounds(partition, job).high
            reason = servers_refusal(
                partition, job, self._base, servers=servers, most_nodes=high
            )
        return reason

    def _server_range(self, partition: Partition, most_nodes: int) -> tuple[int, int]:
        """Fewest and most servers to weigh; one number where it was asked for."""
        asked = self._job.request.servers
        if asked:
            return asked, asked
        most = min(int(self._base.server.most_servers.value), most_nodes - 1)
        fewest = fewest_servers(partition, self._job, self._base)
        return fewest, max(most, fewest)

    def _lanes(self) -> Candidates:
        request = self._job.request
        rings = request.layout != "ps" and not request.servers
        ranges = []  # partition, fewest and most servers, fewest and most nodes
        for at, partition in enumerate(self.fit):
            bounds = node_bounds(partition, self._job)
            numbers = [(0, 0)] if rings else []
            if request.layout != "allreduce":
                numbers.append(self._server_range(partition, bounds.high))
            for few, many in numbers:
                reason = self.refusal(partition, few)
                if reason is None:
                    ranges.append((at, few, many, bounds.low, bounds.high))
                else:
                    self.refused.append(refused_row(partition.name, reason, servers=few))
        partitions, fewest, most, low, high = np.array(ranges, dtype=np.int64).reshape(-1, 5).T
        servers, source = spread(fewest, most)
        whole = Candidates(
            partition=partitions[source],
            servers=servers,
            low=np.maximum(low[source], servers + 1),
            high=high[source],
        )
        served = whole.take(whole.servers > 0)
        return _by_regime(whole.take(whole.servers == 0)).joined(served)


def _by_regime(rings: Candidates) -> Candidates:
    """Lanes of all-reduce cut into one node, two, and more: steps grow within each alone."""
    pieces = []
    for fewest, most in ((1, 1), (2, 2), (3, np.iinfo(np.int64).max)):
        piece = dataclasses.replace(
            rings, low=np.maximum(rings.low, fewest), high=np.minimum(rings.high, most)
        )
        pieces.append(piece.take(piece.low <= piece.high))
    return pieces[0].joined(pieces[1]).joined(pieces[2])
