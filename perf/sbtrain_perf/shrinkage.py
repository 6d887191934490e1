"""Fits a sum of few positive terms to measurements, held to a prior where data is thin.

Both live on the logarithm: `log measured = log prediction + noise`, and the logarithm of
each term has a normal prior. Maximum a posteriori by damped Gauss-Newton; measurements far
from the others count linearly (Huber, 1964). Numpy alone, deterministic.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.intervals import student_factor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

NOISE_SD = 0.1  # of one measurement's logarithm, at least: so runs of one plan differ
FEW_ROWS = 4  # fewer do not tell their own noise
_HUBER = 1.5  # noise widths
_ROUNDS = 100
_NOISE_ROUNDS = 5


def fit_terms(
    features: Floats,
    measured: Floats,
    prior: Floats,
    *,
    prior_sd: Floats,
    power: float = 1.0,
) -> Floats:
    """Terms c > 0 with `(sum_j features[i, j] * c[j]^power)^(1/power)` near measured[i].

    Args:
        features: (rows, terms), not negative, of every row one above 0.
        measured: (rows,), above 0.
        prior: (terms,), the median of each term's prior; a term of prior 0 stays 0.
        prior_sd: (terms,), the spread of the logarithm of each.
    """
    used = prior > 0.0
    fit = _Fit(features[:, used], np.log(measured), np.log(prior[used]), prior_sd[used], power)
    logs = fit.solve(NOISE_SD)
    noise_sd = max(spread(fit.residuals(logs)), NOISE_SD)
    if len(measured) >= FEW_ROWS and noise_sd > NOISE_SD:
        logs = fit.solve(noise_sd)
    out = np.zeros(len(prior))
    out[used] = np.exp(logs)
    return out


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FitSpread:
    """How far off fitted terms may be. covariance: (terms, terms) of their logarithms, 0 for
    a term that stays 0. noise_sd: of one more measurement's logarithm about the sum, so that
    90 % lie within 1.645 of it."""

    covariance: Floats
    noise_sd: float


def spread_of_fit(
    features: Floats,
    measured: Floats,
    terms: Floats,
    *,
    prior_sd: Floats,
    cold_sd: Floats,
    usual_sd: float,
    usual_samples: float,
    power: float = 1.0,
) -> FitSpread:
    """How far off what fit_terms found may be where the terms' logarithms really lie cold_sd
    from the priors, linearised: ``A^-1 (J'J/s^2 + P C P) A^-1, A = J'J/s^2 + P``, with J each
    term's shares, s the noise, P = 1/prior_sd^2 and C = cold_sd^2. Terms that measurements do
    not tell apart stay as uncertain as they were.

    The noise is the residuals' mean square, usual_samples of usual_sd among them (an inverse
    gamma prior), and all is wider by what Student's law with as many degrees of freedom
    is than the normal one.
    """
    used = terms > 0.0
    logs = np.log(terms[used])
    fit = _Fit(features[:, used], np.log(measured), logs, prior_sd[used], power)
    shares = fit.shares(logs)
    residuals = fit.residuals(logs)
    held = np.diag(1.0 / prior_sd[used] ** 2)
    off = held @ np.diag(cold_sd[used] ** 2) @ held
    noise_sd, degrees = usual_sd, usual_samples
    for _ in range(_NOISE_ROUNDS):
        told_apart = shares.T @ shares / noise_sd**2
        inner = np.linalg.inv(told_apart + held)
        told = float(np.trace(inner @ told_apart))
        degrees = usual_samples + max(len(measured) - told, 0.0)
        squares = usual_samples * usual_sd**2 + float(np.sum(residuals**2))
        noise_sd = math.sqrt(squares / degrees)
    factor = student_factor(degrees)
    covariance = np.zeros((len(terms), len(terms)))
    covariance[np.ix_(used, used)] = inner @ (told_apart + off) @ inner * factor**2
    return FitSpread(covariance=covariance, noise_sd=noise_sd * factor)


def spread(values: Floats) -> float:
    """Standard deviation from the median of distances to the median: robust."""
    return float(1.4826 * np.median(np.abs(values - np.median(values))))


class _Fit:
    def __init__(
        self, features: Floats, target: Floats, prior: Floats, prior_sd: Floats, power: float
    ) -> None:
        self.features = features
        self.target = target
        self.prior = prior
        self.prior_sd = prior_sd
        self.power = power

    def residuals(self, logs: Floats) -> Floats:
        total = self.features @ np.exp(self.power * logs)
        return np.log(total) / self.power - self.target

    def shares(self, logs: Floats) -> Floats:
        """(rows, terms): how the logarithm of each sum follows those of the terms."""
        parts = self.features * np.exp(self.power * logs)
        return np.asarray(parts / parts.sum(axis=1, keepdims=True))

    def solve(self, noise_sd: float) -> Floats:
        """The best end of several descents: a term that is far too small has no slope."""
        ends = [self._descend(start, noise_sd) for start in self._starts()]
        return min(ends, key=lambda logs: self._cost(logs, noise_sd))

    def _starts(self) -> list[Floats]:
        """The prior; the prior at the data's level; then with each term in turn, and with
        all, as large as the data allows."""
        level = self.prior - float(np.median(self.residuals(self.prior)))
        with np.errstate(divide="ignore"):
            largest = self.target[:, None] - np.log(self.features) / self.power
        largest = np.where(np.any(self.features > 0.0, axis=0), largest.min(axis=0), level)
        starts = [self.prior, level, largest]
        for term in range(len(level)):
            start = level.copy()
            start[term] = largest[term]
            starts.append(start)
        return starts

    def _cost(self, logs: Floats, noise_sd: float) -> float:
        far = np.abs(self.residuals(logs)) / noise_sd
        near = np.minimum(far, _HUBER)
        held = (logs - self.prior) / self.prior_sd
        return float(np.sum(near * (far - near / 2.0)) + np.sum(held**2) / 2.0)

    def _descend(self, logs: Floats, noise_sd: float) -> Floats:
        damping = 1e-3
        cost = self._cost(logs, noise_sd)
        for _ in range(_ROUNDS):
            shares = self.shares(logs) / noise_sd
            residuals = self.residuals(logs) / noise_sd
            weights = np.minimum(1.0, _HUBER / np.maximum(np.abs(residuals), 1e-300))
            held = (logs - self.prior) / self.prior_sd
            slope = shares.T @ (weights * residuals) + held / self.prior_sd
            curve = shares.T @ (weights[:, None] * shares)
            curve += np.diag(1.0 / self.prior_sd**2)
            step = np.linalg.solve(curve + damping * np.diag(np.diag(curve)), slope)
            step = np.clip(step, -3.0, 3.0)
            moved = self._cost(logs - step, noise_sd)
            if moved > cost:
                damping *= 10.0
                if damping > 1e10:
                    break
                continue
            logs, damping = logs - step, max(damping / 10.0, 1e-9)
            if cost - moved < 1e-12 * (1.0 + cost):
                break
            cost = moved
        return logs
