"""Error and coverage of predictions against measurements."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from sbtrain_perf.fitting.conformal import Estimate
from sbtrain_perf.score.scoring import GroupScore


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One scored row: what was measured, what was predicted, and its 90 % interval if any."""

    measured: float
    predicted: float
    low: float | None = None
    high: float | None = None
    label: str = ""

    @classmethod
    def of(cls, estimate: Estimate, *, measured: float, label: str) -> Point:
        return cls(
            measured=measured,
            predicted=estimate.value,
            low=estimate.low,
            high=estimate.high,
            label=label,
        )

    @property
    def ape(self) -> float:
        """Absolute error relative to the measurement, per cent."""
        return 100.0 * abs(self.predicted - self.measured) / abs(self.measured)

    @property
    def covered(self) -> bool | None:
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high

    @property
    def width(self) -> float | None:
        """Width of the interval relative to the prediction."""
        if self.low is None or self.high is None:
            return None
        return (self.high - self.low) / abs(self.predicted)


def summarise(group: str, model: str, points: Sequence[Point]) -> GroupScore:
    """MAPE, median APE, coverage and mean width over the points (at least one)."""
    apes = [point.ape for point in points]
    covered = [point.covered for point in points]
    widths = [point.width for point in points]
    has_interval = None not in covered
    return GroupScore(
        group=group,
        model=model,
        n=len(points),
        mape=statistics.fmean(apes),
        median_ape=statistics.median(apes),
        coverage90=statistics.fmean(map(bool, covered)) if has_interval else None,
        mean_width=statistics.fmean(w for w in widths if w is not None)
        if has_interval
        else None,
    )
