"""Partitions that differ in nothing but their name: one of them is searched for all.

Large sites name the same nodes many times (by group, by queue, by day). Their rows have the
same values, so that the first of them stands for the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.predict import Candidates
from sbtrain_perf.request import Partition

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

_SAME = attrgetter(
    *(f.name for f in dataclasses.fields(Partition) if f.name not in ("name", "gres"))
)


class Alike:
    """Which partitions are alike.

    Args:
        queue_waits: seconds by name; partitions that wait differently differ.
        known: names of which something was learnt: they are like no other.
    """

    def __init__(
        self,
        partitions: Sequence[Partition],
        *,
        queue_waits: Mapping[str, float],
        known: Collection[str],
    ) -> None:
        members: dict[object, list[int]] = {}
        for at, partition in enumerate(partitions):
            name = partition.name
            key = (_SAME(partition), queue_waits.get(name, 0.0), name if name in known else "")
            members.setdefault(key, []).append(at)
        self._members = {of[0]: np.array(of) for of in members.values()}
        self._any = len(members) < len(partitions)

    def searched(self, lanes: Candidates) -> Candidates:
        """The lanes of partitions that stand for all that are like them."""
        if not self._any:
            return lanes
        return lanes.take(np.isin(lanes.partition, list(self._members)))

    def all_of(self, rows: Candidates, values: Floats, *, most: int) -> Candidates:
        """The `most` best rows where each stands also for the partitions like its own: least
        value first, then the fewest nodes, then as they stand."""
        if not self._any:
            return rows
        members = [self._members[at] for at in rows.partition.tolist()]
        source = np.repeat(np.arange(len(rows)), [len(of) for of in members])
        several = dataclasses.replace(
            rows.take(source), partition=np.concatenate([*members, np.empty(0, dtype=np.int64)])
        )
        order = np.lexsort((several.servers, several.partition, several.low, values[source]))
        return several.take(order[:most])
