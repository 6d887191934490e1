"""Finds the best of very many candidates exactly, by branch and bound over node counts.

Ranges of node counts are bounded from below in one call; ranges that cannot hold the best
of their group are dropped, the others are split, until so few rows are left that all are
predicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.predict import Candidates

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

FEW_ROWS = 20_000  # so many are predicted at once rather than bounded
_GROWTH = 4
_PIECES = 8
_PROMISING = 1000  # ranges of least bound whose first rows are predicted in each round
_PROMISING_SHARE = 20
_SLACK = 1.0 + 1e-9  # a bound and the value it bounds may round apart


def count_rows(lanes: Candidates) -> int:
    return int(np.sum(lanes.high - lanes.low + 1))


def spread(low: Integers, high: Integers) -> tuple[Integers, Integers]:
    """low..high of every range, one after another, and the index of each one's range."""
    widths = high - low + 1
    source = np.repeat(np.arange(len(low)), widths)
    offsets = np.arange(len(source)) - np.repeat(np.cumsum(widths) - widths, widths)
    return low[source] + offsets, source


def expand(lanes: Candidates) -> tuple[Candidates, Integers]:
    """Every node count of every range, and the index of the range it comes from."""
    nodes, source = spread(lanes.low, lanes.high)
    rows = Candidates(
        partition=lanes.partition[source], servers=lanes.servers[source], low=nodes, high=nodes
    )
    return rows, source


def best_of_groups(
    lanes: Candidates,
    groups: Integers,
    value: Callable[[Candidates], Floats],
    *,
    most: int,
    may_do: Callable[[Candidates], NDArray[np.bool_]] | None = None,
) -> tuple[Candidates, Floats]:
    """The best row of each of the `most` best groups, best first.

    The best row has the least value, then the fewest nodes, then stands first.

    Args:
        lanes: ranges of node counts.
        groups: of each lane, from 0.
        value: of candidates; of a range, no more than that of any row in it; infinite
            where a row will not do.
        may_do: a condition that is dear to check: of a range, true if of any row in it.

    Returns:
        Rows and their values. A group none of whose rows will do is left out.
    """
    best = np.full(int(groups.max(initial=-1)) + 1, np.inf)
    may_do_at_all = np.isfinite(value(lanes))
    lanes, groups = lanes.take(may_do_at_all), groups[may_do_at_all]
    ranges, groups = _split(lanes, groups, _growing)
    while len(ranges):
        bounds = value(ranges)
        promising = _least(bounds, max(_PROMISING, len(ranges) // _PROMISING_SHARE))
        ends = ranges.take(promising).first_rows()
        end_values = value(ends)
        if may_do is not None:
            end_values = np.where(may_do(ends), end_values, np.inf)
        np.minimum.at(best, groups[promising], end_values)
        reach = np.partition(best, most - 1)[most - 1] if len(best) > most else np.inf
        reach = np.minimum(best[groups], reach) * _SLACK
        may_win = np.isfinite(bounds) & (bounds <= reach)
        ranges, groups = ranges.take(may_win), groups[may_win]
        if may_do is not None:
            kept = may_do(ranges)
            ranges, groups = ranges.take(kept), groups[kept]
        if count_rows(ranges) <= FEW_ROWS or not np.any(ranges.high > ranges.low):
            break
        ranges, groups = _split(ranges, groups, _evenly)
    rows, source = expand(ranges)
    values = value(rows)
    if may_do is not None:
        values = np.where(may_do(rows), values, np.inf)
    return _best_rows(rows, groups[source], values, most)


def _best_rows(
    rows: Candidates, groups: Integers, values: Floats, most: int
) -> tuple[Candidates, Floats]:
    order = np.lexsort((rows.servers, rows.partition, rows.low, values))
    order = order[np.isfinite(values[order])]
    _, first = np.unique(groups[order], return_index=True)
    chosen = order[np.sort(first)[:most]]
    return rows.take(chosen), values[chosen]


def _least(values: Floats, most: int) -> Integers:
    """Where the `most` least values are."""
    if len(values) <= most:
        return np.arange(len(values))
    return np.argpartition(values, most)[:most]


def _growing(lanes: Candidates) -> tuple[Integers, Integers]:
    """low..4 low - 1, 4 low..16 low - 1 and so on: as many as the widest lane needs."""
    ratio = float(np.max(lanes.high / lanes.low, initial=1.0))
    powers = _GROWTH ** np.arange(int(math.log(ratio, _GROWTH)) + 1)
    lows = lanes.low[:, None] * powers
    return lows, np.minimum(_GROWTH * lows - 1, lanes.high[:, None])


def _evenly(lanes: Candidates) -> tuple[Integers, Integers]:
    edges = np.arange(_PIECES + 1)
    cuts = lanes.low[:, None] + (lanes.high - lanes.low + 1)[:, None] * edges // _PIECES
    return cuts[:, :-1], cuts[:, 1:] - 1


def _split(
    lanes: Candidates,
    groups: Integers,
    cut: Callable[[Candidates], tuple[Integers, Integers]],
) -> tuple[Candidates, Integers]:
    lows, highs = cut(lanes)
    lane, piece = np.nonzero(lows <= highs)
    ranges = Candidates(
        partition=lanes.partition[lane],
        servers=lanes.servers[lane],
        low=lows[lane, piece],
        high=highs[lane, piece],
    )
    return ranges, groups[lane]
