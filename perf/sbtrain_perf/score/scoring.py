"""What every scored data set returns: one row per group and model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScore:
    """Error of one model on one group of rows. APE values in per cent.

    coverage90 is the share (0..1) of rows inside the model's 90 % interval, and
    mean_width that interval's mean width relative to the prediction; both None for a model
    that gives no interval. For lifetimes mape and median_ape are None and brier is set.
    """

    group: str
    model: str
    n: int
    mape: float | None
    median_ape: float | None
    coverage90: float | None = None
    mean_width: float | None = None
    brier: float | None = None


class DataSetScorer(Protocol):
    """A data set's module: its NAME, and the score of every model on it."""

    NAME: str

    def score(self, fit_dir: Path, score_dir: Path) -> list[GroupScore]: ...
