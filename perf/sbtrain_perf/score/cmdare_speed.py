"""cmdare-speed: one worker's step time on networks that the fit has not seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sbtrain_perf.fitting.step_time import StepTimeFit, fit_step_time
from sbtrain_perf.score.cmdare import (
    Cnn,
    WorkerStep,
    cnn_of,
    predicted_step,
    read_cnns,
    read_scored_steps,
    read_worker_steps,
    step_observation,
)
from sbtrain_perf.score.metrics import Point, summarise
from sbtrain_perf.score.scoring import GroupScore
from sbtrain_perf.score.tables import nothing_to_fit
from sbtrain_perf.score.yardsticks import paper_models, relative_terms

NAME = "cmdare-speed"
GROUPS = ("K80", "P100")
FEWEST_ROWS = 3


def score(fit_dir: Path, score_dir: Path) -> list[GroupScore]:
    """Groups K80, P100 and any further GPU of the scored rows; error of the step time."""
    scores = []
    for gpu, models in points(fit_dir, score_dir).items():
        scores += [summarise(gpu, model, rows) for model, rows in models.items()]
    return scores


def points(fit_dir: Path, score_dir: Path) -> dict[str, dict[str, list[Point]]]:
    """Every prediction, by GPU and model."""
    cnns = read_cnns(fit_dir, score_dir)
    fitted, scored = read_worker_steps(fit_dir), read_scored_steps(score_dir)
    if scored and not fitted:
        raise nothing_to_fit(fit_dir, "cmdare/speed_single_worker.csv")
    found = {row.gpu for row in scored}
    groups = [gpu for gpu in GROUPS if gpu in found] + sorted(found - set(GROUPS))
    observations = [step_observation(row, cnns) for row in fitted]
    ours = {
        "ours": fit_step_time(observations),
        "ours-no-session": fit_step_time(observations, sessions=False),
    }
    result: dict[str, dict[str, list[Point]]] = {}
    for gpu in groups:
        rows = [row for row in scored if row.gpu == gpu]
        result[gpu] = {name: _ours(fit, rows, cnns) for name, fit in ours.items()}
        same = [row for row in fitted if row.gpu == gpu]
        result[gpu] |= _yardsticks(same, rows, cnns)
    return result


def _ours(fit: StepTimeFit, rows: Sequence[WorkerStep], cnns: Mapping[str, Cnn]) -> list[Point]:
    result = []
    for row in rows:
        cnn = cnn_of(cnns, row.model)
        estimate = predicted_step(fit, cnn, row.gpu, order=cnn.order)
        result.append(Point.of(estimate, measured=row.step_s, label=row.model))
    return result


def _yardsticks(
    fitted: Sequence[WorkerStep], scored: Sequence[WorkerStep], cnns: Mapping[str, Cnn]
) -> dict[str, list[Point]]:
    """The paper's regressions on its "GFLOPs", and two terms of counts on relative error.

    A regression sees only rows whose networks have its feature, and scores only such; one
    that has too few of them is left out.
    """

    def published(rows: Sequence[WorkerStep]) -> NDArray[np.float64]:
        return np.array([[cnn_of(cnns, row.model).published_gflops] for row in rows])

    def counts(rows: Sequence[WorkerStep]) -> NDArray[np.float64]:
        networks = [cnn_of(cnns, row.model).network for row in rows]
        return np.array(
            [[1.0, (n.parameters * n.tensors) ** 0.5, n.parameters] for n in networks]
        )

    def of_paper(rows: Sequence[WorkerStep]) -> list[WorkerStep]:
        return [row for row in rows if math.isfinite(published([row])[0, 0])]

    result: dict[str, list[Point]] = {}
    known, asked = of_paper(fitted), of_paper(scored)
    if len(known) >= FEWEST_ROWS and asked:
        models = paper_models(published(known), _target(known), rbf_c=100.0, rbf_epsilon=0.01)
        for name, predict in models:
            result[name] = _points(asked, predict(published(asked)))
    if len(fitted) >= FEWEST_ROWS:
        predict = relative_terms(counts(fitted), _target(fitted))
        result["sqrt-terms"] = _points(scored, predict(counts(scored)))
    return result


def _target(rows: Sequence[WorkerStep]) -> NDArray[np.float64]:
    return np.array([row.step_s for row in rows])


def _points(rows: Sequence[WorkerStep], predicted: NDArray[np.float64]) -> list[Point]:
    return [
        Point(measured=row.step_s, predicted=float(value), label=row.model)
        for row, value in zip(rows, predicted, strict=True)
    ]
