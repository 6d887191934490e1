"""What revoked workers take off the mean speed of a run that goes on without them.

Revocations are Poisson, at a rate per worker-hour; a worker that goes at a uniform moment
takes its share of the work that was left. So a run of n workers and T hours loses
rate * T / 2 of its speed in the mean, whatever n is, and at least one worker stays. Our own
model: the public runs tell a run's mean speed, not when its workers went.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Source: CM-DARE's revocation_summary, about half of 396 servers revoked within 24 hours and
# most of those early: 0.05 an hour, which counts as much as PRIOR_HOURS of runs.
PRIOR_RATE_1_H = 0.05
PRIOR_HOURS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotRun:
    """share: its mean speed over that of an undisturbed run; hours: what that one takes."""

    workers: int
    hours: float
    share: float


def revocation_rate_1_h(runs: Sequence[SpotRun]) -> float:
    """Revocations per worker-hour, from how much speed runs have lost.

    A lone worker that goes ends its run, so that runs of one worker tell nothing.
    """
    told = [run for run in runs if run.workers > 1]
    lost = sum(max(1.0 - run.share, 0.0) for run in told)
    hours = sum(run.hours for run in told)
    return (2.0 * lost + PRIOR_RATE_1_H * PRIOR_HOURS) / (hours + PRIOR_HOURS)


def shares_left(
    rate_1_h: float, *, workers: int, hours: float, draws: int, random: np.random.Generator
) -> NDArray[np.float64]:
    """Draws of the share of its speed that a run keeps; shape (draws,)."""
    if workers < 2:
        return np.ones(draws)
    gone = random.random((draws, workers)) < 1.0 - np.exp(-rate_1_h * hours)
    lost = np.sum(gone * random.random((draws, workers)), axis=1) / workers
    return np.asarray(np.maximum(1.0 - lost, 1.0 / workers))
