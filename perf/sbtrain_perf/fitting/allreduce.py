"""Fitting all-reduce steps over workloads together: what placement does is shared, what a
workload is (its computation, its gradient volume, how much it overlaps) is its own.

Maximum a posteriori by least squares on log errors; a Gaussian process on what is left
interpolates between measured placements; the posterior's covariance widens the interval
where a prediction extrapolates. The priors are our own, set from the spread between the six
workloads of the Pollux step times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import least_squares

from sbtrain_perf.fitting.posterior import posterior_covariance
from sbtrain_perf.models.overlap import (
    OVERLAP_SHARPNESS,
    PLACEMENT_COEFFICIENTS,
    PLACEMENT_TERMS,
    placement_features,
    step_s,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    Words = NDArray[np.str_]

# Standard deviations of log times: a placement's own, and of one row within it.
PLACEMENT_SD, ROW_SD = 0.045, 0.06
# How much a workload departs from the shared coefficients, by term.
DEPARTURES = {
    "two_nodes": 0.12,
    "two_nodes_gpus": 0.06,
    "many_nodes_nodes": 0.10,
    "many_nodes_gpus": 0.06,
    "one_node": 0.30,
    "one_node_gpus": 0.10,
}
_DEPARTING = [PLACEMENT_TERMS.index(term) for term in DEPARTURES]
SHARED_SD = 1.0  # of the shared coefficients about the shipped ones, with rich data
SHARED_SD_SPARSE = 0.1  # and where no workload has many placements
RESIDUAL_SD = (0.05, 0.03, 0.035, 0.02, 0.04)  # kernel_matrix says of what
NUGGET_SD = 0.055
RICH_PLACEMENTS = 25  # a workload measured on more multi-GPU placements is no longer sparse


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRows:
    """Measured steps, one a row; all arrays have the shape (rows,).

    batch is samples per GPU; sync_s the part of step_s spent in gradient synchronisation
    (nan where it is not known, as for rows to predict). shape names a placement up to the
    order of its nodes.
    """

    workload: Words
    shape: Words
    nodes: Floats
    replicas: Floats
    most_gpus: Floats
    fewest_gpus: Floats
    batch: Floats
    step_s: Floats
    sync_s: Floats

    def __len__(self) -> int:
        return len(self.workload)

    def where(self, keep: Bools | NDArray[np.intp]) -> StepRows:
        return StepRows(**{name: getattr(self, name)[keep] for name in self.__slots__})

    @property
    def features(self) -> Floats:
        return placement_features(
            nodes=self.nodes,
            replicas=self.replicas,
            most_gpus=self.most_gpus,
            fewest_gpus=self.fewest_gpus,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Centre (seconds) and standard deviation of the logarithm, shape (rows,)."""

    step_s: Floats
    log_sd: Floats


class _Parameters:
    """Where each kind of parameter lies in the flat vector that is optimised."""

    def __init__(self, workloads: int) -> None:
        self.workloads = workloads
        self.shared = slice(0, len(PLACEMENT_TERMS))
        self.sharpness = self.shared.stop
        begin = self.sharpness + 1
        self.scale, self.forward, self.contention = (
            slice(begin + i * workloads, begin + (i + 1) * workloads) for i in range(3)
        )
        self.departures = slice(
            self.contention.stop, self.contention.stop + workloads * len(DEPARTURES)
        )
        self.size = self.departures.stop

    def own(self) -> list[NDArray[np.intp]]:
        """Of each kind that every workload has its own of: where they lie, by workload."""
        every = np.arange(self.workloads)
        kinds = [part.start + every for part in (self.scale, self.forward, self.contention)]
        width = len(DEPARTURES)
        return kinds + [self.departures.start + every * width + i for i in range(width)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Design:
    """Rows as the closed form takes them; computed once, since a fit asks often."""

    index: NDArray[np.intp]  # of the workload
    compute_s: Floats
    features: Floats
    crowd: Floats
    many: Bools


class AllReduceModel:
    """Fitted steps of one or more workloads.

    Args:
        rows: what was measured; every workload to be predicted must be among them.

    Raises:
        ValueError: no rows.
    """

    def __init__(self, rows: StepRows) -> None:
        if not len(rows):
            raise ValueError("no measured steps to fit")
        self.rows = rows
        self.workloads = sorted(set(rows.workload.tolist()))
        self._at = _Parameters(len(self.workloads))
        self._compute = {name: _compute_table(rows, name) for name in self.workloads}
        self.sparse = {name: _is_sparse(rows, name) for name in self.workloads}
        start, mean, sd = self._priors()
        design, row_sd, measured = self._design(rows), _row_sd(rows), np.log(rows.step_s)

        def residuals(x: Floats) -> Floats:
            error = (self._log_step(x, design) - measured) / row_sd
            return np.concatenate([error, (x - mean) / sd])

        def jacobian(x: Floats) -> Floats:
            slopes = self._slopes(x, design) / row_sd[:, None]
            return np.concatenate([slopes, np.diag(1.0 / sd)])

        result = least_squares(
            residuals, start, jac=jacobian, loss="soft_l1", f_scale=2.0, max_nfev=60
        )
        self._x: Floats = result.x
        self._covariance = posterior_covariance(result.jac)
        left = np.clip(measured - self._log_step(self._x, design), -0.3, 0.3)
        kernel = kernel_matrix(rows, rows) + NUGGET_SD**2 * np.eye(len(rows))
        self._factor = cholesky(kernel, lower=True, overwrite_a=True, check_finite=False)
        self._weights = cho_solve((self._factor, True), left, check_finite=False)

    def predict(self, rows: StepRows) -> Predicted:
        """Raises KeyError when a workload was not fitted."""
        design = self._design(rows)
        slopes = self._slopes(self._x, design)
        variance = np.einsum("ij,ij->i", slopes @ self._covariance, slopes)
        cross = kernel_matrix(rows, self.rows)
        known = solve_triangular(self._factor, cross.T, lower=True, check_finite=False)
        prior = sum(value**2 for value in RESIDUAL_SD)
        variance += np.maximum(prior - (known**2).sum(axis=0), 0.0) + NUGGET_SD**2
        return Predicted(
            step_s=np.exp(self._log_step(self._x, design) + cross @ self._weights),
            log_sd=np.sqrt(variance),
        )

    def compute_s(self, rows: StepRows) -> Floats:
        """Seconds of computation alone on one GPU, by the workload's own batch curve."""
        out = np.empty(len(rows))
        for name in set(rows.workload.tolist()):
            here = rows.workload == name
            out[here] = _along(self._compute[name], rows.batch[here])
        return out

    def _design(self, rows: StepRows) -> _Design:
        place = {name: i for i, name in enumerate(self.workloads)}
        return _Design(
            index=np.array([place[name] for name in rows.workload.tolist()], dtype=np.intp),
            compute_s=self.compute_s(rows),
            features=rows.features,
            crowd=(rows.most_gpus - 1.0) / 3.0,
            many=rows.replicas > 1,
        )

    def _log_step(self, x: Floats, design: _Design) -> Floats:
        """Logarithm of the closed form's step in seconds."""
        at, index = self._at, design.index
        departing = (
            design.features[:, _DEPARTING] * x[at.departures].reshape(at.workloads, -1)[index]
        )
        sync = np.exp(
            x[at.scale][index] + design.features @ x[at.shared] + departing.sum(axis=1)
        )
        step = step_s(
            design.compute_s * np.maximum(1.0 + x[at.contention][index] * design.crowd, 0.5),
            np.where(design.many, sync, 0.0),
            forward_share=1.0 / (1.0 + np.exp(-x[at.forward][index])),
            sharpness=1.0 + np.exp(np.clip(x[at.sharpness], -3.0, 3.5)),
        )
        return np.asarray(np.log(step), dtype=np.float64)

    def _slopes(self, x: Floats, design: _Design, *, step: float = 1e-5) -> Floats:
        """Forward differences of _log_step, shape (rows, parameters). What every workload
        has its own of is moved for all workloads at once: a row feels one of them."""
        base = self._log_step(x, design)
        slopes = np.zeros((len(base), self._at.size))
        for i in range(self._at.sharpness + 1):
            moved = x.copy()
            moved[i] += step
            slopes[:, i] = (self._log_step(moved, design) - base) / step
        rows = np.arange(len(base))
        for places in self._at.own():
            moved = x.copy()
            moved[places] += step
            slopes[rows, places[design.index]] = (self._log_step(moved, design) - base) / step
        return slopes

    def _priors(self) -> tuple[Floats, Floats, Floats]:
        """Where the search starts, and each parameter's prior mean and standard deviation."""
        at, rows = self._at, self.rows
        mean, sd = np.zeros(at.size), np.ones(at.size)
        mean[at.shared] = PLACEMENT_COEFFICIENTS
        sd[at.shared] = SHARED_SD_SPARSE if all(self.sparse.values()) else SHARED_SD
        mean[at.sharpness], sd[at.sharpness] = np.log(OVERLAP_SHARPNESS - 1.0), 0.5
        for i, name in enumerate(self.workloads):
            here = rows.workload == name
            guess = _visible_sync_s(rows, here)
            mean[at.scale.start + i] = np.log(max(guess, 1e-4)) - 0.7
        sd[at.scale] = 3.0
        mean[at.forward], sd[at.forward] = -0.5, 0.7
        start = mean.copy()
        mean[at.contention], sd[at.contention] = 0.02, 0.05
        sd[at.departures] = np.tile(list(DEPARTURES.values()), at.workloads)
        return start, mean, sd


def kernel_matrix(a: StepRows, b: StepRows) -> Floats:
    """Covariance of what the closed form leaves over, shape (len(a), len(b)).

    The parts of RESIDUAL_SD, in order: rows of one workload near in placement and batch;
    near in placement alone; of the same placement; of the same placement in any workload;
    and near in nodes and batch.
    """
    variances = [value**2 for value in RESIDUAL_SD]
    same_shape = a.shape[:, None] == b.shape[None, :]
    out = np.where(same_shape, variances[3], 0.0)
    for name in set(a.workload.tolist()):
        rows, columns = np.flatnonzero(a.workload == name), np.flatnonzero(b.workload == name)
        block = np.ix_(rows, columns)
        out[block] += _within_workload(a.where(rows), b.where(columns), variances)
        out[block] += variances[2] * same_shape[block]
    return out


def _within_workload(a: StepRows, b: StepRows, variances: Sequence[float]) -> Floats:
    def distance(field: str, scale: float) -> Floats:
        left, right = getattr(a, field), getattr(b, field)
        out: Floats = ((np.log(left)[:, None] - np.log(right)[None, :]) / scale) ** 2
        return out

    nodes = distance("nodes", 0.35)
    batch = np.exp(-0.5 * distance("batch", 0.7))
    others = (
        distance("most_gpus", 0.5) + distance("fewest_gpus", 0.5) + distance("replicas", 0.4)
    )
    placement = np.exp(-0.5 * (nodes + others))
    near = variances[0] * batch + variances[1]
    out: Floats = near * placement + variances[4] * batch * np.exp(-0.5 * nodes)
    return out


def _compute_table(rows: StepRows, workload: str) -> tuple[Floats, Floats]:
    """Batches and the computation at each: of single GPUs where measured, else of any."""
    here = rows.workload == workload
    alone = here & (rows.replicas == 1)
    batches = np.unique(rows.batch[here])
    seconds = []
    for batch in batches:
        at = rows.batch == batch
        chosen = alone & at if (alone & at).any() else here & at
        seconds.append(np.median(rows.step_s[chosen] - rows.sync_s[chosen]))
    return batches, np.array(seconds)


def _along(table: tuple[Floats, Floats], batch: Floats) -> Floats:
    """Linear between the measured batches, on with the outer slope beyond them."""
    known, seconds = table
    out: Floats = np.interp(batch, known, seconds)
    if len(known) > 1:
        back = max(0, len(known) - 4)
        slope = (seconds[-1] - seconds[back]) / (known[-1] - known[back])
        above = batch > known[-1]
        out[above] = seconds[-1] + (batch[above] - known[-1]) * max(slope, 0.0)
        slope = (seconds[1] - seconds[0]) / (known[1] - known[0])
        below = batch < known[0]
        out[below] = np.maximum(
            seconds[0] - slope * (known[0] - batch[below]), 0.4 * seconds[0]
        )
    return out


def _visible_sync_s(rows: StepRows, here: Bools) -> float:
    """Synchronisation where least of it hides behind computation: near its longest."""
    away = here & (rows.nodes > 1)
    if not away.any():
        return 0.3 * float(np.median(rows.step_s[here]))
    return float(np.quantile(rows.sync_s[away], 0.9))


def _is_sparse(rows: StepRows, workload: str) -> bool:
    many = (rows.workload == workload) & (rows.replicas > 1)
    return len(set(rows.shape[many].tolist())) <= RICH_PLACEMENTS


def _row_sd(rows: StepRows) -> Floats:
    """Rows of one placement share its deviation: many of them weigh little more than one."""
    keys = np.char.add(np.char.add(rows.workload, "|"), rows.shape)
    _, place, count = np.unique(keys, return_inverse=True, return_counts=True)
    return np.asarray(np.sqrt(count[place] * PLACEMENT_SD**2 + ROW_SD**2), dtype=np.float64)
