"""cmdare-checkpoint: seconds of single saves of networks that the fit has not seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sbtrain_perf.fitting.checkpoint import (
    CheckpointFiles,
    CheckpointFit,
    CheckpointObservation,
    fit_checkpoints,
)
from sbtrain_perf.score.cmdare import Cnn, cnn_of, read_cnns
from sbtrain_perf.score.metrics import Point, summarise
from sbtrain_perf.score.scoring import GroupScore
from sbtrain_perf.score.tables import ScoreError, ScoreRow, read_table
from sbtrain_perf.score.yardsticks import Predictor, paper_models, svr

NAME = "cmdare-checkpoint"
FEWEST_NETWORKS = 3


def score(fit_dir: Path, score_dir: Path) -> list[GroupScore]:
    """The group all; error of each save's seconds."""
    return [summarise("all", model, rows) for model, rows in points(fit_dir, score_dir).items()]


def points(fit_dir: Path, score_dir: Path) -> dict[str, list[Point]]:
    """Every model's prediction of every scored save."""
    cnns = read_cnns(fit_dir, score_dir)
    fitted, scored = read_saves(fit_dir, cnns), read_saves(score_dir, cnns)
    if not scored:
        return {}
    if len(fitted) < FEWEST_NETWORKS:
        raise ScoreError(
            f"--fit: {fit_dir} has checkpoints of {len(fitted)} networks; "
            f"{FEWEST_NETWORKS} needed",
            hint="--fit must hold cmdare/checkpoint_samples.csv or cmdare/checkpoint.csv",
        )
    result = {
        "ours": _ours(fit_checkpoints(fitted), scored),
        "ours-no-session": _ours(fit_checkpoints(fitted, sessions=False), scored),
    }
    for name, predict in _yardsticks(fitted).items():
        values = predict(_sizes(scored))
        result[name] = [
            Point(measured=duration_s, predicted=float(value), label=row.name)
            for row, value in zip(scored, values, strict=True)
            for duration_s in row.durations_s
        ]
    return result


def read_saves(folder: Path, cnns: Mapping[str, Cnn]) -> list[CheckpointObservation]:
    """checkpoint_samples.csv, or the means of checkpoint.csv where only they are there."""
    table = read_table(folder, "cmdare/checkpoint_samples.csv")
    column = "duration_s"
    if not table.rows:
        table = read_table(folder, "cmdare/checkpoint.csv")
        column = "duration_mean_s"
    rows: dict[str, list[ScoreRow]] = {}
    for row in table:
        rows.setdefault(row.name("model"), []).append(row)
    files = {name: [_files(sample) for sample in samples] for name, samples in rows.items()}
    return [
        CheckpointObservation(
            name=name,
            files=files[name][0],
            durations_s=tuple(sample.positive(column) for sample in samples),
            order=cnn_of(cnns, name).order,
        )
        for name, samples in rows.items()
    ]


def _files(row: ScoreRow) -> CheckpointFiles:
    meta_mb = row.positive("meta_mb")
    data_mb = row.positive("ckpt_mb") - meta_mb
    if data_mb <= 0.0:
        raise row.wrong(
            "ckpt_mb",
            f"is not more than meta_mb = {meta_mb:g}",
            hint="ckpt_mb is the size of all files, the graph (meta_mb) among them",
        )
    return CheckpointFiles(data_mb=data_mb, meta_mb=meta_mb)


def _ours(fit: CheckpointFit, scored: Sequence[CheckpointObservation]) -> list[Point]:
    result = []
    for row in scored:
        estimate = fit.predict(row.files, order=row.order)
        result += [
            Point.of(estimate, measured=duration_s, label=row.name)
            for duration_s in row.durations_s
        ]
    return result


def _yardsticks(fitted: Sequence[CheckpointObservation]) -> dict[str, Predictor]:
    """The paper's regressions on total size, and SVR on two principal components of sizes."""
    target = np.array([np.mean(row.durations_s) for row in fitted])
    size, files = _sizes(fitted)[:, :1], _sizes(fitted)[:, 1:]
    mean, span = files.mean(axis=0), np.maximum(files.std(axis=0), 1e-12)
    axes = np.linalg.svd((files - mean) / span, full_matrices=False)[2][:2].T

    def components(rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray((rows[:, 1:] - mean) / span @ axes)

    by_name = dict(paper_models(size, target, rbf_c=10.0, rbf_epsilon=0.14))
    on_components = svr(components(_sizes(fitted)), target, kernel="rbf", c=10.0, epsilon=0.14)

    def on_size(predict: Predictor) -> Predictor:
        return lambda rows: predict(rows[:, :1])

    models = {name: on_size(predict) for name, predict in by_name.items()}
    return models | {"svr-rbf-pca": lambda rows: on_components(components(rows))}


def _sizes(rows: Sequence[CheckpointObservation]) -> NDArray[np.float64]:
    """Megabytes: total, weights and index, graph."""
    return np.array(
        [
            [row.files.data_mb + row.files.meta_mb, row.files.data_mb, row.files.meta_mb]
            for row in rows
        ]
    )
