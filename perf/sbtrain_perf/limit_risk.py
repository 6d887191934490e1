"""What the time limit may cost a run that does not resume.

A run that the limit ends is lost whole, and has to be run again with the same odds: of runs
that are kept with probability p, `(1 - p) / p` are lost on average for each that is kept.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sbtrain_perf.intervals import Deviations
    from sbtrain_perf.predict import Forecast

    Floats = NDArray[np.float64]

LEAST_KEPT = 1e-6
SAFE = 0.9  # a row that is kept with less says so


def kept_share(deviations: Deviations, limit_s: Floats) -> Floats:
    """Probability that all after the queue ends before the limit, shape (candidates,).

    The sum of the parts is taken as log-normal, with the variance that they add up to.
    """
    parts = deviations.parts_s[1:]
    run_s = parts.sum(axis=0)
    ends = np.isfinite(run_s) & (run_s > 0.0)
    safe_s = np.where(ends, run_s, 1.0)
    spread = np.sqrt(((np.where(ends, parts, 0.0) * deviations.log_sd[1:]) ** 2).sum(axis=0))
    with np.errstate(divide="ignore"):
        room = np.log(np.where(limit_s > 0.0, limit_s, 0.0) / safe_s)
    far = room / np.maximum(spread / safe_s, 1e-9)
    return np.where(ends, _normal_share(far), 0.0)


def run_again(
    forecast: Forecast, kept: Floats, limit_s: Floats, *, nodes: Floats, price: Floats
) -> Forecast:
    """The forecast with what lost runs take besides: their time, node-hours and cost."""
    share = np.maximum(kept, LEAST_KEPT)
    with np.errstate(invalid="ignore"):
        lost_s = np.where(kept < 1.0, (1.0 - share) / share * limit_s, 0.0)
    hours = nodes * lost_s / 3600.0
    return dataclasses.replace(
        forecast,
        total_s=forecast.total_s + lost_s,
        lost_s=forecast.lost_s + lost_s,
        node_hours=forecast.node_hours + hours,
        cost=forecast.cost + np.where(price > 0.0, hours * price, 0.0),
    )


def _normal_share(z: Floats) -> Floats:
    """The normal law's distribution, within 3e-4. Source: Page, 1977."""
    z = np.clip(z, -9.0, 9.0)
    return np.asarray(0.5 * (1.0 + np.tanh(0.7978845608 * (z + 0.044715 * z**3))))
