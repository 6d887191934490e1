"""Fits one worker's step time per GPU, for networks that were never run.

Three forms of models.step_time are fitted on relative error and averaged (geometric mean):
none of them wins everywhere, and where they part the interval widens. The GPUs known to a
fit place an unknown one by its published figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sbtrain_perf.fitting.conformal import (
    NORMAL_90,
    Estimate,
    conformal_factor,
    log_estimate,
)
from sbtrain_perf.fitting.relative_regression import (
    LogPrediction,
    RelativeRegression,
    Vector,
    fit_relative,
    mixture,
)
from sbtrain_perf.models.residual_network import recognise
from sbtrain_perf.models.step_time import PUBLISHED_GPUS, speed_ratio

PLACED_GPU_SD = 0.15  # of log speed: K80 against P100 is 2.2 to 2.9 over the networks


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Features of a network. Activations and multiply-adds: one sample, forward."""

    parameters: int
    tensors: int
    activations: float | None = None
    multiply_adds: float | None = None


def network_of(parameters: int, tensors: int) -> Network:
    """Adds activations and multiply-adds where the counts are those of a known family."""
    known = recognise(parameters, tensors)
    return Network(
        parameters=parameters,
        tensors=tensors,
        activations=known.activations if known else None,
        multiply_adds=known.multiply_adds if known else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StepObservation:
    """One network on one GPU. order: its place in the order of measurement, if known."""

    gpu: str
    name: str
    network: Network
    step_s: float
    order: float = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeFit:
    """Fitted forms per GPU, with the conformal factor of each."""

    forms: dict[str, tuple[RelativeRegression, ...]]
    factors: dict[str, float]

    def predict(self, network: Network, gpu: str, *, order: float = math.nan) -> Estimate:
        """Seconds of one step at the batch that was fitted.

        Raises:
            LookupError: the GPU is neither in the fit nor in models.step_time.PUBLISHED_GPUS,
                or no GPU of the fit has published figures to place it by.
        """
        if gpu in self.forms:
            log = _predict(self.forms[gpu], [network], np.array([order]))
            return log_estimate(float(log.mean[0]), float(log.sd[0]), factor=self.factors[gpu])
        known = [name for name in self.forms if name in PUBLISHED_GPUS]
        if gpu not in PUBLISHED_GPUS or not known:
            raise LookupError(f"nothing is known of the GPU {gpu!r}")
        figures = PUBLISHED_GPUS[gpu]
        parts = []
        for name in known:
            log = _predict(self.forms[name], [network], np.array([math.nan]))
            ratio = speed_ratio(figures, PUBLISHED_GPUS[name])
            sd = np.hypot(log.sd, PLACED_GPU_SD)
            parts.append(LogPrediction(mean=log.mean - math.log(ratio), sd=sd))
        log = mixture(parts, [1.0] * len(parts))
        factor = max(NORMAL_90, *(self.factors[name] for name in known))
        return log_estimate(float(log.mean[0]), float(log.sd[0]), factor=factor)


def fit_step_time(
    observations: Sequence[StepObservation], *, sessions: bool = True
) -> StepTimeFit:
    """Fits every GPU of the observations; needs three networks a GPU to say anything.

    sessions: whether rows measured one after the other share an error (see
    relative_regression); False is what holds at a site that was never measured.
    """
    forms: dict[str, tuple[RelativeRegression, ...]] = {}
    factors: dict[str, float] = {}
    for gpu in dict.fromkeys(o.gpu for o in observations):
        rows = [o for o in observations if o.gpu == gpu]
        forms[gpu] = _fit(rows, sessions=sessions)
        factors[gpu] = conformal_factor(_left_out(rows, sessions=sessions))
    return StepTimeFit(forms=forms, factors=factors)


def _left_out(rows: Sequence[StepObservation], *, sessions: bool) -> list[float]:
    """Error over scale of each network when the fit has not seen it."""
    scores = []
    for name in dict.fromkeys(row.name for row in rows):
        kept = [row for row in rows if row.name != name]
        if len(kept) < 3:
            continue
        fit = _fit(kept, sessions=sessions)
        for row in (row for row in rows if row.name == name):
            log = _predict(fit, [row.network], np.array([row.order]))
            scores.append((math.log(row.step_s) - float(log.mean[0])) / float(log.sd[0]))
    return scores


def _fit(rows: Sequence[StepObservation], *, sessions: bool) -> tuple[RelativeRegression, ...]:
    measured = np.array([row.step_s for row in rows])
    order = np.array([row.order for row in rows])
    networks = [row.network for row in rows]
    return tuple(
        fit_relative(features, measured, order, sessions=sessions)
        for features in _designs(networks)
    )


def _predict(
    fits: Sequence[RelativeRegression], networks: Sequence[Network], order: Vector
) -> LogPrediction:
    designs = _designs(networks)
    if len(designs) < len(fits):  # activations unknown: the first form alone
        fits = fits[: len(designs)]
    parts = [fit.predict(features, order) for fit, features in zip(fits, designs, strict=False)]
    return mixture(parts, [1.0] * len(parts))


def _designs(networks: Sequence[Network]) -> list[NDArray[np.float64]]:
    """Design matrices of the forms; the second and third only where work is known."""
    one = np.ones(len(networks))
    parameters = np.array([n.parameters for n in networks], dtype=float)
    tensors = np.array([n.tensors for n in networks], dtype=float)
    proxy = np.sqrt(parameters * tensors)
    designs = [np.column_stack([one, tensors, proxy, parameters])]
    if all(n.activations is not None and n.multiply_adds is not None for n in networks):
        work = np.array([n.multiply_adds for n in networks], dtype=float)
        volume = np.array([n.activations for n in networks], dtype=float)
        designs.append(np.column_stack([one, tensors, proxy, work]))
        designs.append(np.column_stack([one, tensors, volume, work]))
    return designs
