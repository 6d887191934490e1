"""Sums of non-negative terms, fitted on relative error, with errors shared by a session.

``y = (b . x) exp(s + e)``, b >= 0. Measurements that were taken one after the other share
hosts and network weather: s is a Gaussian process over their order,
``cov(s_i, s_j) = session_sd^2 exp(-|i - j| / length)``, and e is independent noise. Its
three constants are averaged over a grid, each weighted by the restricted likelihood
(Patterson and Thompson, 1971). Where the order of a row is unknown its s is 0 and uncertain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

Vector = NDArray[np.float64]

SESSION_SDS = (5e-4, 0.04, 0.08, 0.12)
SESSION_LENGTHS = (5.0, 10.0)
NOISE_SDS = (0.015, 0.03, 0.05)
LONE_NOISE_SDS = (*NOISE_SDS, 0.08, 0.12)  # where sessions are left out, noise holds them


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPrediction:
    """Mean and standard deviation of the logarithm, one entry a row.

    session is the part of the mean that a session's shared error gives; doubt the part of
    sd that stands for the sum of terms itself being wrong.
    """

    mean: Vector
    sd: Vector
    session: Vector
    doubt: Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class _Member:
    """One point of the grid, fitted."""

    weight: float
    coefficients: Vector
    session_sd: float
    length: float
    noise_sd: float
    residual: Vector  # log(measured / b.x)
    precision: NDArray[np.float64]  # inverse covariance of the residuals
    parameter_covariance: NDArray[np.float64]
    order: Vector

    def predict(self, features: NDArray[np.float64], order: Vector) -> LogPrediction:
        with np.errstate(invalid="ignore"):
            apart = np.abs(order[:, None] - self.order[None, :])
        shared = self.session_sd**2 * np.exp(-apart / self.length)
        shared = np.where(np.isfinite(shared), shared, 0.0)
        value = features @ self.coefficients
        session = shared @ self.precision @ self.residual
        explained = np.einsum("ij,jk,ik->i", shared, self.precision, shared)
        relative = features / value[:, None]
        leverage = np.einsum("ij,jk,ik->i", relative, self.parameter_covariance, relative)
        variance = self.session_sd**2 - explained + self.noise_sd**2 + leverage
        return LogPrediction(
            mean=np.log(value) + session,
            sd=np.sqrt(variance),
            session=session,
            doubt=np.sqrt(leverage),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativeRegression:
    """A fitted sum of terms. Coefficients belong to the features as they were given."""

    members: tuple[_Member, ...]

    @property
    def coefficients(self) -> Vector:
        """Averaged over the grid by weight."""
        return np.asarray(sum(m.weight * m.coefficients for m in self.members))

    def predict(self, features: NDArray[np.float64], order: Vector) -> LogPrediction:
        """Features (rows, terms); order (rows,), nan where unknown."""
        parts = [member.predict(features, order) for member in self.members]
        return mixture(parts, [member.weight for member in self.members])


def mixture(parts: Sequence[LogPrediction], weights: Sequence[float]) -> LogPrediction:
    """Mean and spread of a weighted mixture: disagreement widens it."""
    share = np.asarray(weights)[:, None] / np.sum(weights)

    def average(values: Sequence[Vector]) -> Vector:
        return np.asarray((share * np.array(values)).sum(axis=0))

    mean = average([part.mean for part in parts])
    between = average([(part.mean - mean) ** 2 for part in parts])
    return LogPrediction(
        mean=mean,
        sd=np.sqrt(average([part.sd**2 for part in parts]) + between),
        session=average([part.session for part in parts]),
        doubt=np.sqrt(average([part.doubt**2 for part in parts]) + between),
    )


def fit_relative(
    features: NDArray[np.float64],
    measured: Vector,
    order: Vector,
    *,
    sessions: bool,
    noise_sd: Vector | None = None,
) -> RelativeRegression:
    """Fit on rows of non-negative features (rows, terms) and positive measurements.

    Args:
        order: place of each row in the order of measurement; nan where unknown.
        sessions: False leaves the shared errors out (what a new site can expect).
        noise_sd: known relative error of each measurement, on top of the fitted noise.
    """
    scale = np.maximum((features / measured[:, None]).mean(axis=0), 1e-300)
    known = np.zeros_like(measured) if noise_sd is None else noise_sd
    members: list[_Member] = []
    logs: list[float] = []
    for session_sd in SESSION_SDS if sessions else SESSION_SDS[:1]:
        for length in SESSION_LENGTHS if session_sd > SESSION_SDS[0] else SESSION_LENGTHS[:1]:
            for noise in NOISE_SDS if sessions else LONE_NOISE_SDS:
                member, log_likelihood = _fit_member(
                    features / scale,
                    measured,
                    order,
                    constants=(session_sd, length, noise),
                    known=known,
                )
                members.append(member)
                logs.append(log_likelihood)
    weights = np.exp(np.array(logs) - max(logs))
    weights /= weights.sum()
    return RelativeRegression(
        members=tuple(
            _Member(
                weight=float(weight),
                coefficients=member.coefficients / scale,
                session_sd=member.session_sd,
                length=member.length,
                noise_sd=member.noise_sd,
                residual=member.residual,
                precision=member.precision,
                parameter_covariance=member.parameter_covariance / np.outer(scale, scale),
                order=member.order,
            )
            for member, weight in zip(members, weights, strict=True)
            if weight > 1e-4
        )
    )


def _fit_member(
    features: NDArray[np.float64],
    measured: Vector,
    order: Vector,
    *,
    constants: tuple[float, float, float],
    known: Vector,
) -> tuple[_Member, float]:
    session_sd, length, noise_sd = constants
    apart = np.abs(order[:, None] - order[None, :])
    np.fill_diagonal(apart, 0.0)
    shared = session_sd**2 * np.exp(-apart / length)
    covariance = np.where(np.isfinite(shared), shared, 0.0)
    covariance += np.diag(noise_sd**2 + known**2)
    root = np.linalg.cholesky(covariance)
    relative = features / measured[:, None]
    coefficients, _ = nnls(
        np.linalg.solve(root, relative), np.linalg.solve(root, np.ones(len(measured)))
    )
    value = features @ coefficients
    residual = np.log(measured / value)
    precision = np.linalg.inv(covariance)
    active = coefficients > 0
    design = (features / value[:, None])[:, active]
    information = design.T @ precision @ design + 1e-9 * np.eye(int(active.sum()))
    parameter_covariance = np.zeros((len(coefficients),) * 2)
    parameter_covariance[np.ix_(active, active)] = np.linalg.inv(information)
    log_likelihood = -0.5 * (
        float(residual @ precision @ residual)
        + 2.0 * float(np.log(np.diag(root)).sum())
        + float(np.linalg.slogdet(information)[1])
        - float(np.linalg.slogdet(design.T @ design)[1])
    )
    member = _Member(
        weight=1.0,
        coefficients=coefficients,
        session_sd=session_sd,
        length=length,
        noise_sd=noise_sd,
        residual=residual,
        precision=precision,
        parameter_covariance=parameter_covariance,
        order=order,
    )
    return member, log_likelihood
