"""Rows that are as good as the fastest, and which of them to take.

Two runs of one configuration differ by about 2 % (CM-DARE's clusters, measured repeatedly):
a row that is faster by less is faster on paper only, and may cost ten times as much. Of the
rows within NEAR of the least time, the one with the least product of time and price is taken:
it spares a larger share of the price than it gives away of the time. Where prices are unknown,
node-hours (or nodes held) are the price, so a further server must gain more than noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

NEAR = 0.02  # share of the least time


def traded(seconds: Floats, prices: Floats, *, least_s: float) -> Floats:
    """What is least for the row to take; infinite for rows that are no near tie.

    Of bounds from below on seconds and prices, a bound from below: the search for the row
    stays exact.
    """
    near = np.isfinite(seconds) & (seconds <= least_s * (1.0 + NEAR))
    return np.where(near, np.where(near, seconds, 0.0) * np.where(near, prices, 0.0), np.inf)


def nearly_fastest(seconds: Floats, prices: Floats, nodes: Integers) -> int:
    """Index of the row to take of single rows; of equal trades that with the fewest nodes,
    then the first."""
    least_s = float(np.min(seconds))
    return int(np.lexsort((nodes, traded(seconds, prices, least_s=least_s)))[0])
