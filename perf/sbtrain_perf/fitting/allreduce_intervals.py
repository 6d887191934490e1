"""How far to widen all-reduce intervals: errors on placements, node counts and workloads
that were held back, each kind calibrated by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.fitting.allreduce import AllReduceModel, StepRows
from sbtrain_perf.fitting.conformal import conformal_factor

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]

# Used where the data at hand cannot tell: our calibration on the Pollux step times.
BETWEEN, BEYOND, SPARSE = 1.65, 1.55, 1.3
HELD_SHARE = 0.15
LEAST_ROWS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalFactors:
    """Factor on the log standard deviation for a 90 % interval, by what is asked.

    between: node counts that were measured; beyond: more nodes than were measured; sparse:
    a workload of which only a few placements were.
    """

    between: float = BETWEEN
    beyond: float = BEYOND
    sparse: float = SPARSE

    def of(self, model: AllReduceModel, rows: StepRows) -> Floats:
        """One factor a row."""
        most = {
            name: float(model.rows.nodes[model.rows.workload == name].max())
            for name in model.workloads
        }
        return np.array(
            [
                self.sparse
                if model.sparse[name]
                else (self.beyond if nodes > most[name] else self.between)
                for name, nodes in zip(rows.workload.tolist(), rows.nodes, strict=True)
            ]
        )


def calibrate(rows: StepRows, *, seed: int = 0) -> IntervalFactors:
    """Refit without some rows and compare; deterministic for one seed.

    The factor beyond the measured nodes never falls under its constant: one step further out
    says too little of two.
    """
    rich = _rich_workloads(rows)
    if not rich:
        return IntervalFactors()
    generator = np.random.default_rng(seed)
    of_rich = np.isin(rows.workload, rich) & (rows.replicas > 1)
    shapes = np.unique(rows.shape[of_rich])
    held_shapes = generator.choice(
        shapes, max(1, int(len(shapes) * HELD_SHARE / 2)), replace=False
    )
    between = of_rich & (
        np.isin(rows.shape, held_shapes) | (generator.random(len(rows)) < HELD_SHARE / 2)
    )
    beyond = of_rich & (rows.nodes == rows.nodes[of_rich].max()) & (rows.nodes > 2)
    sparse_scores: list[float] = []
    for name in rich:
        kept = _thinned(rows, name)
        held = (rows.workload == name) & ~kept
        sparse_scores += _scores(rows, held)
    return IntervalFactors(
        between=_factor(_scores(rows, between), BETWEEN),
        beyond=max(_factor(_scores(rows, beyond), BEYOND), BEYOND),
        sparse=_factor(sparse_scores, SPARSE),
    )


def _rich_workloads(rows: StepRows) -> list[str]:
    model_free = sorted(set(rows.workload.tolist()))
    return [
        name
        for name in model_free
        if len(set(rows.shape[(rows.workload == name) & (rows.replicas > 1)].tolist())) > 25
    ]


def _thinned(rows: StepRows, workload: str) -> Bools:
    """What a first look at a workload measures: three batches, on one GPU, on the GPUs of
    one node, and on one GPU of each of several nodes."""
    here = rows.workload == workload
    batches = np.unique(rows.batch[here])
    few = batches[[0, len(batches) // 2, -1]]
    placed = (rows.nodes == 1) | (rows.replicas == rows.nodes)
    return np.asarray(here & np.isin(rows.batch, few) & placed & (rows.nodes <= 4))


def _scores(rows: StepRows, held: Bools) -> list[float]:
    """Log errors over their standard deviations, of the rows held back."""
    if held.sum() < LEAST_ROWS:
        return []
    kept = rows.where(~held)
    tested = rows.where(held & np.isin(rows.workload, np.unique(kept.workload)))
    predicted = AllReduceModel(kept).predict(tested)
    scores = np.log(tested.step_s / predicted.step_s) / predicted.log_sd
    return [float(score) for score in scores]


def _factor(scores: list[float], otherwise: float) -> float:
    return conformal_factor(scores) if len(scores) >= LEAST_ROWS else otherwise
