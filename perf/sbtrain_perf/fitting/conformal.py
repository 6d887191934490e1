"""Intervals that cover by construction: quantiles of errors on rows that were left out.

A prediction gives a centre and a scale; the errors of the groups left out one at a time,
each divided by its scale, give the factor by which the scale is multiplied. Groups are what
will be unseen: a network, a GPU, a number of workers. Source: Vovk et al. 2005; normalised
leave-one-out residuals as in Barber et al., "Predictive inference with the jackknife+",
2021 (whose worst case is 80 % at a nominal 90 %; on exchangeable groups it is about 90 %).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.9
NORMAL_90 = 1.6449  # half-width of a 90 % interval in standard deviations
PRIOR_SCORES = 5.0  # how many left-out rows the normal law is worth


def conformal_factor(scores: Sequence[float], *, level: float = LEVEL) -> float:
    """The factor on the scale: the ceil((n+1) level)-th smallest |error| / scale.

    With few scores that order statistic does not exist (n < 9 at 90 %); then, and to damp
    its noise in general, the normal law's factor is mixed in as PRIOR_SCORES scores'
    worth.
    """
    magnitudes = sorted(abs(score) for score in scores)
    count = len(magnitudes)
    if not count:
        return NORMAL_90
    rank = (count + 1) * level
    low = min(max(math.floor(rank), 1), count)
    high = min(low + 1, count)
    part = min(max(rank - low, 0.0), 1.0)
    quantile = magnitudes[low - 1] * (1.0 - part) + magnitudes[high - 1] * part
    return (count * quantile + PRIOR_SCORES * NORMAL_90) / (count + PRIOR_SCORES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A positive quantity with its 90 % interval, in the unit of the quantity."""

    value: float
    low: float
    high: float


def log_estimate(mean: float, sd: float, *, factor: float) -> Estimate:
    """From mean and standard deviation of the logarithm and the conformal factor."""
    reach = factor * sd
    return Estimate(
        value=math.exp(mean), low=math.exp(mean - reach), high=math.exp(mean + reach)
    )
