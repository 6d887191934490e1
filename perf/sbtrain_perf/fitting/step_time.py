"""Fits one worker's step time per GPU, for networks that were never run.

Three forms of models.step_time are fitted on relative error and averaged (geometric mean):
none of them wins everywhere, and where they part the interval widens. Where a GPU's own
forms are in doubt, the same network's place on the other GPUs counts; an unknown GPU is
placed by its published figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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
    fit_relative,
    mixture,
)
from sbtrain_perf.gpu_figures import PUBLISHED_GPUS
from sbtrain_perf.models.residual_network import recognise
from sbtrain_perf.models.step_time import speed_ratio

FEWEST_NETWORKS = 3
LEAST_DOUBT = 0.02  # of a log curve, below which weights no longer tell curves apart
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
class _Forms:
    """Forms of one GPU, and how their curve lies to each other GPU's.

    ratios: by GPU, mean and scatter of log(other's curve / own curve) over the networks
    that both ran. Networks keep their place between GPUs better than a form extrapolates.
    """

    fits: tuple[RelativeRegression, ...]
    ratios: Mapping[str, tuple[float, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimeFit:
    """Fitted forms per GPU, with the conformal factor of each."""

    forms: Mapping[str, _Forms]
    factors: Mapping[str, float]

    def predict(self, network: Network, gpu: str, *, order: float = math.nan) -> Estimate:
        """Seconds of one step at the batch that was fitted.

        Raises:
            LookupError: the GPU is neither in the fit nor in gpu_figures.PUBLISHED_GPUS,
                or no GPU of the fit has published figures to place it by.
        """
        if gpu in self.forms:
            log = _log_step(self.forms, network, gpu, order)
            return log_estimate(float(log.mean[0]), float(log.sd[0]), factor=self.factors[gpu])
        known = [name for name in self.forms if name in PUBLISHED_GPUS]
        if gpu not in PUBLISHED_GPUS or not known:
            raise LookupError(f"nothing is known of the GPU {gpu!r}")
        figures = PUBLISHED_GPUS[gpu]
        parts = []
        for name in known:
            log = _log_step(self.forms, network, name, math.nan)
            ratio = speed_ratio(figures, PUBLISHED_GPUS[name])
            sd = np.hypot(log.sd, PLACED_GPU_SD)
            parts.append(replace(log, mean=log.mean - math.log(ratio), sd=sd))
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
    scores = _left_out(observations, sessions=sessions)
    return StepTimeFit(
        forms=_fit_all(observations, sessions=sessions),
        factors={
            gpu: conformal_factor(scores.get(gpu, ()))
            for gpu in dict.fromkeys(o.gpu for o in observations)
        },
    )


def _left_out(
    observations: Sequence[StepObservation], *, sessions: bool
) -> dict[str, list[float]]:
    """By GPU, error over scale of each network when the fit has seen it on no GPU."""
    scores: dict[str, list[float]] = {}
    for name in dict.fromkeys(row.name for row in observations):
        kept = [row for row in observations if row.name != name]
        forms = _fit_all(kept, sessions=sessions)
        for row in observations:
            seen = sum(other.gpu == row.gpu for other in kept)
            if row.name == name and seen >= FEWEST_NETWORKS:
                log = _log_step(forms, row.network, row.gpu, row.order)
                error = math.log(row.step_s) - float(log.mean[0])
                scores.setdefault(row.gpu, []).append(error / float(log.sd[0]))
    return scores


def _fit_all(observations: Sequence[StepObservation], *, sessions: bool) -> dict[str, _Forms]:
    rows: dict[str, list[StepObservation]] = {}
    for row in observations:
        rows.setdefault(row.gpu, []).append(row)
    fits = {gpu: _fit(own, sessions=sessions) for gpu, own in rows.items()}
    curves = {
        gpu: {row.name: float(_own(fits[gpu], row.network, math.nan).mean[0]) for row in own}
        for gpu, own in rows.items()
    }
    result = {}
    for gpu, own in curves.items():
        ratios = {}
        for other, curve in curves.items():
            apart = np.array([curve[name] - own[name] for name in own if name in curve])
            if other != gpu and len(apart) >= FEWEST_NETWORKS:
                ratios[other] = (float(apart.mean()), float(apart.std(ddof=1)))
        result[gpu] = _Forms(fits=fits[gpu], ratios=ratios)
    return result


def _log_step(
    forms: Mapping[str, _Forms], network: Network, gpu: str, order: float
) -> LogPrediction:
    """The GPU's own forms, drawn to the other GPUs' where its own are in more doubt."""
    own = _own(forms[gpu].fits, network, order)
    curves = [(own.mean - own.session, own.doubt)]
    for other, (ratio, scatter) in forms[gpu].ratios.items():
        far = _own(forms[other].fits, network, math.nan)
        curves.append((far.mean - ratio, np.hypot(far.doubt, scatter)))
    weights = np.array([1.0 / np.maximum(doubt, LEAST_DOUBT) ** 2 for _, doubt in curves])
    weights /= weights.sum(axis=0)
    centre = sum(w * curve for w, (curve, _) in zip(weights, curves, strict=True))
    doubt = np.sqrt(
        sum(
            w * (doubt**2 + (curve - centre) ** 2)
            for w, (curve, doubt) in zip(weights, curves, strict=True)
        )
    )
    return LogPrediction(
        mean=np.asarray(centre + own.session),
        sd=np.sqrt(own.sd**2 - own.doubt**2 + doubt**2),
        session=own.session,
        doubt=doubt,
    )


def _fit(rows: Sequence[StepObservation], *, sessions: bool) -> tuple[RelativeRegression, ...]:
    measured = np.array([row.step_s for row in rows])
    order = np.array([row.order for row in rows])
    networks = [row.network for row in rows]
    return tuple(
        fit_relative(features, measured, order, sessions=sessions)
        for features in _designs(networks)
    )


def _own(fits: Sequence[RelativeRegression], network: Network, order: float) -> LogPrediction:
    """Mixture of one GPU's forms; the first alone where activations are unknown."""
    parts = [
        fit.predict(features, np.array([order]))
        for fit, features in zip(fits, _designs([network]), strict=False)
    ]
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
