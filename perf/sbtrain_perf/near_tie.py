"""What time may cost: which of two rows to take where one is faster and the other cheaper.

Objective `balanced`, the default, takes the least `seconds^2 x price`: a run that costs r
times as much must be at least sqrt(r) times as fast. Twice the price has to save 29 % of the
time, four times the price half of it, ten times the price 68 %. Time weighs more than price,
as in the energy x delay^2 of circuit design; of nodes that share a part of the work (Amdahl)
as many are taken as leave that part a third of the time.

Objective `time` looks at the fastest rows alone. Two runs of one configuration differ by about
2 % (CM-DARE's clusters, measured repeatedly): a row that is faster by less is faster on paper
only, and may cost ten times as much. Of the rows within NEAR of the least time, the one with
the least product of time and price is taken: it spares a larger share of the price than it
gives away of the time. Where prices are unknown, node-hours (or nodes held) are the price, so
a further server must gain more than noise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

NEAR = 0.02  # share of the least time
FREE = 0.1  # of the least price: what free nodes count as, lest any wait for them be worth it


def worth(seconds: Floats, prices: Floats) -> Floats:
    """What is least for the row that objective `balanced` takes. Of bounds from below on
    seconds and prices, a bound from below."""
    return np.square(seconds) * prices


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
