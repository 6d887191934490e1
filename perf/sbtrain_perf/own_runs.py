"""What a configuration's own runs say beyond the closed form that all of them were fitted to.

A configuration (so many nodes, so many servers) departs from the form by something of its
own, and its runs from each other by less: of the form's ratio to the median of n runs, the
share `P^2 / (P^2 + R^2 / n)` is believed (a normal law's posterior mean), P and R being the
two standard deviations of the logarithm.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.coefficients import OwnRuns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

# Sources: placements of one shape differ by 3 to 8 % in the Pollux step times; alike runs by
# 1.7 % in the transient-learning ones.
CONFIGURATION_SD = 0.045
RUN_SD = 0.02
MOST_OFF = 0.3  # of a logarithm: what is further from the form is no property of it
_SERVERS, _NODES = 1 << 20, 1 << 24


def own_log_ratio(logs: Sequence[float]) -> float:
    """What is believed of a configuration's log ratio to the form, from that of its runs."""
    share = CONFIGURATION_SD**2 / (CONFIGURATION_SD**2 + RUN_SD**2 / len(logs))
    return share * min(max(statistics.median(logs), -MOST_OFF), MOST_OFF)


def own_runs(measured: Iterable[tuple[int, int, float]]) -> tuple[OwnRuns, ...]:
    """measured: nodes, servers and log ratio to the form, of each run."""
    logs: dict[tuple[int, int], list[float]] = {}
    for nodes, servers, log in measured:
        logs.setdefault((nodes, servers), []).append(log)
    return tuple(
        OwnRuns(nodes=nodes, servers=servers, ratio=math.exp(own_log_ratio(own)), runs=len(own))
        for (nodes, servers), own in sorted(logs.items())
    )


def ratio_of(own: Iterable[OwnRuns], *, nodes: int, servers: int) -> float:
    """Of one configuration to the form; 1 where it was never run."""
    here = (one.ratio for one in own if (one.nodes, one.servers) == (nodes, servers))
    return next(here, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRatios:
    """Ratios of the configurations of many partitions. least: of each partition, at most 1."""

    keys: Integers
    ratios: Floats
    least: Floats

    @classmethod
    def of(cls, rows: Iterable[tuple[int, OwnRuns]], *, partitions: int) -> OwnRatios:
        """rows: a partition's index, and runs of it."""
        least = np.ones(partitions)
        ratios = {}
        for at, own in rows:
            least[at] = min(least[at], own.ratio)
            ratios[(at * _SERVERS + own.servers) * _NODES + own.nodes] = own.ratio
        keys = sorted(ratios)
        return cls(
            keys=np.array(keys, dtype=np.int64),
            ratios=np.array([ratios[key] for key in keys], dtype=np.float64),
            least=least,
        )

    def factors(
        self, *, partition: Integers, servers: Integers, low: Integers, high: Integers
    ) -> Floats:
        """Of single rows (low = high) their own; of ranges no more than that of any row."""
        if not len(self.keys):
            return np.ones(len(low))
        asked = (partition * _SERVERS + servers) * _NODES + low
        at = np.minimum(np.searchsorted(self.keys, asked), len(self.keys) - 1)
        own = np.where(self.keys[at] == asked, self.ratios[at], 1.0)
        return np.where(low == high, own, self.least[partition])
