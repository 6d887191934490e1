"""From the spread of each part of a prediction to intervals and odds of its total.

Parts are log-normal about what is predicted, and independent. A quantile of their sum is
taken as ``total +- sqrt(sum_k (T_k (exp(z s_k) - 1))^2)`` with z the normal quantile, s_k
the standard deviation of a part's logarithm: exact where one part rules, the usual sum of
variances where all are narrow, skewed as it should be where they are wide. Our own form.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.request import Prediction, Spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

NORMAL_90 = 1.6449  # both ends of 90 %
FARTHEST = 8.0  # normal quantile past which nothing is told apart
_HALVINGS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviations:
    """Of candidates, arrays of one length.

    parts_s: (5, candidates): queue, stage, start, all steps, all checkpoints. log_sd: of the
    same. lost_sd_s: of lost_s, which falls towards 0 below its mean and rises linearly above.
    """

    parts_s: Floats
    log_sd: Floats
    lost_s: Floats
    lost_sd_s: Floats

    def total_s(self, z: float | Floats) -> Floats:
        """The total at a normal quantile: 0 is the prediction itself; never ends: infinite."""
        total = self.parts_s.sum(axis=0) + self.lost_s
        ends = np.isfinite(total)
        lost_s = np.where(ends, self.lost_s, 0.0)
        lost_sd = np.where(ends, self.lost_sd_s, 0.0)
        off = self.parts_s * np.expm1(np.minimum(z * self.log_sd, 300.0))
        below = np.expm1(np.minimum(z, 0.0) * (lost_sd / np.maximum(lost_s, 1e-300)))
        lost = np.where(np.less(z, 0.0), lost_s * below, z * lost_sd)
        reach = np.sign(z) * np.hypot(np.sqrt((off**2).sum(axis=0)), lost)
        return np.asarray(np.where(ends, total + reach, np.inf), dtype=np.float64)

    def quantile(self, limit_s: float) -> Floats:
        """The normal quantile at which the total meets a limit, within +-FARTHEST."""
        low = np.full(len(self.lost_s), -FARTHEST)
        high = np.full(len(self.lost_s), FARTHEST)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2.0
            keeps = self.total_s(middle) <= limit_s
            low = np.where(keeps, middle, low)
            high = np.where(keeps, high, middle)
        return np.asarray((low + high) / 2.0)

    def odds(self, limit_s: float) -> Floats:
        """Probability that the total keeps within a limit."""
        return np.array([normal_share(z) for z in self.quantile(limit_s).tolist()])

    def within(self, prediction: Prediction, at: int) -> Prediction:
        """The prediction of candidate `at` with its intervals."""
        one = self._only(at)
        spread = one._spread()
        step = around(prediction.step_s, spread.step)
        return dataclasses.replace(
            prediction,
            total_low_s=float(one.total_s(-NORMAL_90)[0]),
            total_high_s=float(one.total_s(NORMAL_90)[0]),
            step_low_s=step.low_s,
            step_high_s=step.high_s,
            spread=spread,
        )

    def _only(self, at: int) -> Deviations:
        return Deviations(
            parts_s=self.parts_s[:, [at]],
            log_sd=self.log_sd[:, [at]],
            lost_s=self.lost_s[[at]],
            lost_sd_s=self.lost_sd_s[[at]],
        )

    def _spread(self) -> Spread:
        queue, stage, start, step, checkpoint = self.log_sd[:, 0].tolist()
        return Spread(
            queue=queue,
            stage=stage,
            start=start,
            step=step,
            checkpoint=checkpoint,
            lost_s=float(self.lost_sd_s[0]),
        )


def normal_share(z: float) -> float:
    """Probability that a normal variable does not exceed z; 0 and 1 past 8 deviations."""
    if abs(z) >= FARTHEST - 1e-6:
        return float(z > 0)
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


def normal_quantile(share: float) -> float:
    """What a normal variable does not exceed with such a probability."""
    low, high = -FARTHEST, FARTHEST
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if normal_share(middle) < share else (low, middle)
    return (low + high) / 2.0


def student_factor(degrees: float) -> float:
    """How much wider 90 % of Student's t are than the normal law's.

    Cornish and Fisher's expansion (1938), within 1 % from 4 degrees of freedom on.
    """
    z = NORMAL_90
    first = (z**3 + z) / (4.0 * degrees)
    second = (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / (96.0 * degrees**2)
    return (z + first + second) / z


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """The ends of a 90 % interval, in seconds."""

    low_s: float
    high_s: float

    def holds(self, seconds: float) -> bool:
        return self.low_s <= seconds <= self.high_s


def around(seconds: float, log_sd: float) -> Interval:
    reach = math.exp(min(NORMAL_90 * log_sd, 300.0))
    return Interval(low_s=seconds / reach, high_s=seconds * reach)


def term_intervals(prediction: Prediction) -> dict[str, Interval]:
    """Of one staging, start-up, step and checkpoint; empty where the plan gives none."""
    spread = prediction.spread
    if spread == Spread():
        return {}
    return {
        "stage": around(prediction.stage_s, spread.stage),
        "start": around(prediction.start_s, spread.start),
        "step": around(prediction.step_s, spread.step),
        "checkpoint": around(prediction.checkpoint_s, spread.checkpoint),
    }
