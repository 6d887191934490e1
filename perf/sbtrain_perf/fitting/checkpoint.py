"""Fits the time of a checkpoint to remote storage, for networks that never saved one.

Two forms of models.checkpoint are fitted on relative error and averaged (geometric mean):
one linear in the bytes of the weights, one that grows as their power 0.7, both with the
bytes of the graph (the meta file, which follows the number of operations). Single saves of
one network scatter by 5 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sbtrain_perf.fitting.conformal import Estimate, conformal_factor, log_estimate
from sbtrain_perf.fitting.relative_regression import (
    LogPrediction,
    RelativeRegression,
    fit_relative,
    mixture,
)

SUBLINEAR = 0.7  # exponent of the second form


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """Megabytes of weights (data and index files) and of the graph (meta file)."""

    data_mb: float
    meta_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointObservation:
    """Saves of one network. order: its place in the order of measurement, nan if unknown."""

    name: str
    files: CheckpointFiles
    durations_s: tuple[float, ...]
    order: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFit:
    """The fitted forms, the scatter of single saves and the conformal factor."""

    forms: tuple[RelativeRegression, ...]
    save_sd: float  # of the log duration of one save about its network's mean
    factor: float

    def predict(self, files: CheckpointFiles, *, order: float = math.nan) -> Estimate:
        """Seconds of one save, with one save's 90 % interval."""
        log = _predict(self.forms, files, order)
        sd = math.hypot(float(log.sd[0]), self.save_sd)
        return log_estimate(float(log.mean[0]), sd, factor=self.factor)


def fit_checkpoints(
    observations: Sequence[CheckpointObservation], *, sessions: bool = True
) -> CheckpointFit:
    """Fit on at least three networks. sessions: see relative_regression."""
    save_sd = _save_sd(observations)
    scores = []
    for left_out in observations:
        kept = [o for o in observations if o.name != left_out.name]
        if len(kept) < 3:
            continue
        log = _predict(_fit(kept, sessions=sessions), left_out.files, left_out.order)
        sd = math.hypot(float(log.sd[0]), save_sd)
        scores += [
            (math.log(duration_s) - float(log.mean[0])) / sd
            for duration_s in left_out.durations_s
        ]
    return CheckpointFit(
        forms=_fit(observations, sessions=sessions),
        save_sd=save_sd,
        factor=conformal_factor(scores),
    )


def _save_sd(observations: Sequence[CheckpointObservation]) -> float:
    squares, freedom = 0.0, 0
    for observation in observations:
        logs = np.log(observation.durations_s)
        squares += float(((logs - logs.mean()) ** 2).sum())
        freedom += len(logs) - 1
    return math.sqrt(squares / freedom) if freedom else 0.05


def _fit(
    observations: Sequence[CheckpointObservation], *, sessions: bool
) -> tuple[RelativeRegression, ...]:
    mean_s = np.array([math.exp(float(np.mean(np.log(o.durations_s)))) for o in observations])
    order = np.array([o.order for o in observations])
    return tuple(
        fit_relative(features, mean_s, order, sessions=sessions)
        for features in _designs([o.files for o in observations])
    )


def _predict(
    fits: Sequence[RelativeRegression], files: CheckpointFiles, order: float
) -> LogPrediction:
    parts = [
        fit.predict(features, np.array([order]))
        for fit, features in zip(fits, _designs([files]), strict=True)
    ]
    return mixture(parts, [1.0] * len(parts))


def _designs(files: Sequence[CheckpointFiles]) -> list[NDArray[np.float64]]:
    one = np.ones(len(files))
    data = np.array([f.data_mb for f in files])
    meta = np.array([f.meta_mb for f in files])
    return [
        np.column_stack([one, meta, data]),
        np.column_stack([one, meta, data**SUBLINEAR]),
    ]
