"""Fits asynchronous parameter-server clusters: what workers ask for, what servers can give.

The closed form is models.parameter_server's. Everything that features predict badly (a
network's step time, its servers' busy time, how well its tensors spread) has a prior from
features and published facts and is then learnt from that network's own runs. Maximum a
posteriori, with the curvature there as the spread (Laplace's method).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from sbtrain_perf.fitting.conformal import (
    NORMAL_90,
    Estimate,
    conformal_factor,
    log_estimate,
)
from sbtrain_perf.models.parameter_server import (
    cycle_s,
    server_s,
    shard_shares,
    shared_server_s,
    updates_1_s,
)

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

DRAWS = 400
SEED = 20200708
ROBUST_SCALE = 2.0  # residuals beyond this many noise widths count linearly


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """A normal law: mean and standard deviation."""

    mean: float
    sd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerPriors:
    """What is believed of parameter servers before the first run."""

    # A simulated queue asks for 3 where serving times are exponential, for 8 where they vary
    # by 30 %, and for more without end as they come to be constant. The public runs agree:
    # 11.5 for transient learning's ResNet-32, 4 to 5 for CM-DARE's clusters.
    log_sharpness: Belief = Belief(mean=math.log(8.0), sd=0.5)
    network_sharpness_sd: float = 0.4
    # Networks whose variables are unknown: between no gain from a second server (0) and a
    # perfect split (1). Those with known variables: on top of the busiest server's share.
    sharing: Belief = Belief(mean=0.5, sd=0.2)
    shard_loss: Belief = Belief(mean=0.0, sd=0.1)
    # Share of a server's busy time for which a lone worker waits: nothing overlaps.
    waiting: Belief = Belief(mean=0.9, sd=0.2)
    # A server takes tens of microseconds a variable and moves some hundred MB/s.
    log_tensor_s: Belief = Belief(mean=math.log(1e-4), sd=0.7)
    log_parameter_byte_s: Belief = Belief(mean=math.log(1.5e-9), sd=0.7)
    network_sd: float = 0.15  # of a network's log busy time about what its features say
    network_sharing_sd: float = 0.1
    noise_sd: float = 0.03  # of one run's log speed
    noise_rows: float = 4.0  # how many residuals that prior is worth


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedNetwork:
    """variables: elements of each in the order of creation, empty where unknown."""

    name: str
    parameters: int
    tensors: int
    variables: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRun:
    """workers: count by kind, a kind being a GPU or a GPU at a place.

    updates_1_s is what all workers together reach, nan where it is to be predicted; it is
    the median of `repeats` runs.
    """

    network: str
    workers: tuple[tuple[str, int], ...]
    servers: int
    updates_1_s: float = math.nan
    repeats: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFit:
    """Posterior mode and draws around it; factors, by kinds of workers, widen the interval to
    its coverage."""

    networks: Mapping[str, ServedNetwork]
    names: Mapping[tuple[str, ...], int]
    mode: Vector
    draws: Matrix
    noise_sd: Mapping[str, float]  # of one run, by its kinds of workers
    factors: Mapping[str, float] = field(default_factory=dict)

    def log_law(self, run: ClusterRun) -> Belief:
        """Log updates a second of one run: the model's spread and the run's own noise.

        Raises:
            KeyError: network or worker kind was not given to the fit.
        """
        logs = _log_speed(self, self.draws, run)
        noise = self.noise_sd.get(_kinds(run), max(self.noise_sd.values()))
        return Belief(mean=float(np.median(logs)), sd=math.hypot(float(logs.std()), noise))

    def predict(self, run: ClusterRun) -> Estimate:
        """Updates a second of all workers together, with one run's 90 % interval."""
        law = self.log_law(run)
        factor = self.factors.get(_kinds(run), max(self.factors.values(), default=NORMAL_90))
        return log_estimate(law.mean, law.sd, factor=factor)


def fit_servers(
    runs: Sequence[ClusterRun],
    networks: Sequence[ServedNetwork],
    log_step_s: Mapping[tuple[str, str], Belief],
    *,
    priors: ServerPriors | None = None,
) -> ServerFit:
    """Fit on runs, of networks and (network, worker kind) pairs that are known or asked for.

    log_step_s: what one-worker runs, or the step-time model, say of a pair's log step time
    with one server.
    """
    priors = priors or ServerPriors()
    names, centre, sd = _prior(networks, log_step_s, priors)
    fit = ServerFit(
        networks={network.name: network for network in networks},
        names=names,
        mode=centre,
        draws=centre[None, :],
        noise_sd=dict.fromkeys(map(_kinds, runs), priors.noise_sd) or {"": priors.noise_sd},
    )
    for _ in range(2):
        fit = _maximise(fit, runs, centre, sd)
        fit = replace(fit, noise_sd=_noise(fit, runs, priors))
    return fit


def calibrated(
    fit: ServerFit, left_out: Sequence[tuple[ServerFit, Sequence[ClusterRun]]]
) -> ServerFit:
    """The fit with its intervals as wide as errors on left-out runs ask for; those of the same
    kinds of workers, since a faster GPU meets the servers' limit where a slow one does not.

    left_out: fits on a part of the runs, each with runs that it has not seen.
    """
    scores: dict[str, list[float]] = {}
    for part, runs in left_out:
        for run in runs:
            law = part.log_law(run)
            score = (math.log(run.updates_1_s) - law.mean) / law.sd
            scores.setdefault(_kinds(run), []).append(score)
    factors = {kinds: conformal_factor(found) for kinds, found in scores.items()}
    return replace(fit, factors=factors)


def _kinds(run: ClusterRun) -> str:
    return "+".join(sorted(kind for kind, count in run.workers if count))


def _noise(
    fit: ServerFit, runs: Sequence[ClusterRun], priors: ServerPriors
) -> dict[str, float]:
    """Root mean square error of one run by its kinds of workers, drawn to the prior.

    An error counts up to ROBUST_SCALE times the noise so far, so that a wrong record does
    not widen what it is judged by.
    """
    errors: dict[str, list[float]] = {}
    found = _errors(fit, fit.mode[None, :], runs)[0] if runs else []
    for run, error in zip(runs, found, strict=True):
        kinds = _kinds(run)
        size = min(abs(float(error)), ROBUST_SCALE * fit.noise_sd[kinds])
        errors.setdefault(kinds, []).append(run.repeats * size**2)
    prior = priors.noise_rows * priors.noise_sd**2
    return {
        kinds: math.sqrt((sum(squares) + prior) / (len(squares) + priors.noise_rows))
        for kinds, squares in errors.items()
    } or dict(fit.noise_sd)


def _prior(
    networks: Sequence[ServedNetwork],
    log_step_s: Mapping[tuple[str, str], Belief],
    priors: ServerPriors,
) -> tuple[dict[tuple[str, ...], int], Vector, Vector]:
    laws: dict[tuple[str, ...], Belief] = {
        ("log_sharpness",): priors.log_sharpness,
        ("sharing",): priors.sharing,
        ("shard_loss",): priors.shard_loss,
        ("waiting",): priors.waiting,
        ("log_tensor_s",): priors.log_tensor_s,
        ("log_parameter_byte_s",): priors.log_parameter_byte_s,
    }
    for network in networks:
        laws["log_busy", network.name] = Belief(mean=0.0, sd=priors.network_sd)
        laws["sharing", network.name] = Belief(mean=0.0, sd=priors.network_sharing_sd)
        laws["log_sharpness", network.name] = Belief(mean=0.0, sd=priors.network_sharpness_sd)
    for (name, kind), belief in log_step_s.items():
        laws["log_step_s", name, kind] = belief
    return (
        {name: index for index, name in enumerate(laws)},
        np.array([law.mean for law in laws.values()]),
        np.array([law.sd for law in laws.values()]),
    )


def _busy_s(fit: ServerFit, rows: Matrix, name: str, servers: int) -> Vector:
    """Seconds between two updates that the servers cannot undercut, a row of parameters each.

    With known variables the busiest server sets it; else servers^-sharing does.
    """
    network = fit.networks[name]
    tensor_s = np.exp(rows[:, fit.names["log_tensor_s",]])
    parameter_byte_s = np.exp(rows[:, fit.names["log_parameter_byte_s",]])
    own = np.exp(rows[:, fit.names["log_busy", name]])
    spread = rows[:, fit.names["sharing", name]]

    def busy(tensor_share: float, element_share: float) -> Vector:
        seconds = server_s(
            network.parameters * element_share,
            network.tensors * tensor_share,
            tensor_s=tensor_s,
            parameter_byte_s=parameter_byte_s,
        )
        return np.asarray(own * seconds)

    if servers == 1 or not network.variables:
        sharing = np.clip(rows[:, fit.names["sharing",]] + spread, 0.0, 1.0)
        return np.asarray(shared_server_s(busy(1.0, 1.0), servers=servers, sharing=sharing))
    shards = shard_shares(network.variables, servers)
    seconds = np.max([busy(*shares) for shares in shards], axis=0)
    loss = np.clip(rows[:, fit.names["shard_loss",]] + spread, -0.5, 1.0)
    return np.asarray(np.minimum(seconds * servers**loss, busy(1.0, 1.0)))


def _log_speed(fit: ServerFit, rows: Matrix, run: ClusterRun) -> Vector:
    """Log updates a second, one entry per row of parameters."""
    alone_s = _busy_s(fit, rows, run.network, 1)
    shared_s = _busy_s(fit, rows, run.network, run.servers)
    waiting = np.clip(rows[:, fit.names["waiting",]], 0.0, 1.0)
    demand_1_s = np.zeros(len(rows))
    for kind, count in run.workers:
        step_s = np.exp(rows[:, fit.names["log_step_s", run.network, kind]])
        demand_1_s += count / np.asarray(cycle_s(step_s, alone_s, shared_s, waiting=waiting))
    sharpness = np.exp(
        rows[:, fit.names["log_sharpness",]] + rows[:, fit.names["log_sharpness", run.network]]
    )
    speed = np.asarray(updates_1_s(demand_1_s, shared_s, sharpness=sharpness))
    return np.asarray(np.log(speed))


def _errors(fit: ServerFit, rows: Matrix, runs: Sequence[ClusterRun]) -> Matrix:
    """Log error of every run (columns) for every row of parameters."""
    return np.column_stack(
        [_log_speed(fit, rows, run) - math.log(run.updates_1_s) for run in runs]
    )


def _maximise(
    fit: ServerFit, runs: Sequence[ClusterRun], centre: Vector, sd: Vector
) -> ServerFit:
    """The posterior mode, by least squares on bent errors and departures from the prior."""
    normal = np.random.default_rng(SEED).standard_normal((DRAWS, len(centre)))
    if not runs:
        return replace(fit, draws=centre + normal * sd)
    widths = np.array([fit.noise_sd[_kinds(run)] / math.sqrt(run.repeats) for run in runs])
    nudge = np.vstack([np.zeros(len(centre)), np.diag(1e-5 * sd)])

    def misfit(rows: Matrix) -> Matrix:
        error = _errors(fit, rows, runs) / widths
        size = np.abs(error)
        linear = np.sqrt(ROBUST_SCALE * (2.0 * size - ROBUST_SCALE).clip(min=1e-12))
        bent = np.sign(error) * np.where(size > ROBUST_SCALE, linear, size)
        return np.asarray(np.hstack([bent, (rows - centre) / sd]))

    def slope(parameters: Vector) -> Matrix:
        """All forward differences in one call, the forms being vectors over rows."""
        values = misfit(parameters + nudge)
        return np.asarray(((values[1:] - values[0]) / (1e-5 * sd)[:, None]).T)

    found = least_squares(
        lambda parameters: misfit(parameters[None, :])[0],
        centre,
        jac=slope,
        x_scale=sd,
        max_nfev=60,
    )
    information = found.jac.T @ found.jac
    root = np.linalg.cholesky(np.linalg.inv(information))
    return replace(fit, mode=found.x, draws=found.x + normal @ root.T)
