"""Multi-GPU throughputs of the Gavel artifact on K80, P100 and V100, packed and spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.fitting.conformal import conformal_factor
from sbtrain_perf.fitting.multi_gpu import MultiGpuModel, ScalingRows
from sbtrain_perf.score.metrics import Point, summarise
from sbtrain_perf.score.tables import Row, read_table

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from sbtrain_perf.score.scoring import GroupScore

    Key = tuple[str, str, str, str]

NAME = "gavel"
FILE = "gavel/throughputs.csv"
FOLDS = 5


def score(fit_dir: Path, score_dir: Path) -> list[GroupScore]:
    """Ours beside linear scaling, over all rows and for each GPU type."""
    by_model = points(fit_dir, score_dir)
    types = sorted({point.label for point in by_model["ours"]})
    return [
        summarise(group, model, members)
        for group in ("all", *types)
        for model, all_points in by_model.items()
        if (members := [point for point in all_points if group in ("all", point.label)])
    ]


def points(fit_dir: Path, score_dir: Path) -> dict[str, list[Point]]:
    """Points in total steps per second by model, labelled by GPU type. One-GPU rates come
    from --fit alone; a multi-GPU row whose network was not measured on one GPU of its type is
    left out."""
    known_rows = _usable(fit_dir)
    alone = {
        _key(row): 1.0 / row.number("steps_per_s") for row in known_rows if _gpus(row) == 1
    }
    known = _scaling_rows(known_rows, alone)
    asked = _scaling_rows(_usable(score_dir), alone)
    if not len(known) or not len(asked):
        return {"ours": [], "linear scaling": []}
    step, log_sd = MultiGpuModel(known).predict(asked)
    reach = np.exp(conformal_factor(_left_out_scores(known)) * log_sd)
    measured = (asked.gpus / asked.step_s).tolist()
    predicted = (asked.gpus / step).tolist()
    linear = (asked.gpus / asked.alone_s).tolist()
    types = asked.gpu.tolist()
    return {
        "ours": [
            Point(measured=m, predicted=p, low=p / r, high=p * r, label=gpu)
            for m, p, r, gpu in zip(measured, predicted, reach.tolist(), types, strict=True)
        ],
        "linear scaling": [
            Point(measured=m, predicted=p, label=gpu)
            for m, p, gpu in zip(measured, linear, types, strict=True)
        ],
    }


def _usable(folder: Path) -> list[Row]:
    """Rows that ran: the artifact writes 0 for what failed."""
    return [row for row in read_table(folder, FILE) if (row.optional("steps_per_s") or 0) > 0]


def _key(row: Row) -> Key:
    names = ("source_file", "gpu", "model", "batch_size_per_gpu")
    source, gpu, model, batch = (row.text(name) for name in names)
    return source, gpu, model, batch


def _gpus(row: Row) -> int:
    return row.whole("num_gpus")


def _scaling_rows(rows: list[Row], alone: dict[Key, float]) -> ScalingRows:
    """steps_per_s is the sum over GPUs, so one replica's step is num_gpus / steps_per_s."""
    many = [row for row in rows if _gpus(row) > 1 and _key(row) in alone]
    gpus = np.array([float(_gpus(row)) for row in many])
    return ScalingRows(
        network=np.array([row.text("model") for row in many], dtype=np.str_),
        gpu=np.array([row.text("gpu") for row in many], dtype=np.str_),
        gpus=gpus,
        packed=np.array([row.text("consolidated") == "True" for row in many], dtype=np.bool_),
        alone_s=np.array([alone[_key(row)] for row in many]),
        step_s=gpus / np.array([row.number("steps_per_s") for row in many]),
    )


def _left_out_scores(rows: ScalingRows) -> list[float]:
    """Log errors over their standard deviation: random fifths, then each GPU type whole."""
    fold = np.random.default_rng(0).integers(FOLDS, size=len(rows))
    held_parts: list[NDArray[np.bool_]] = [fold == i for i in range(FOLDS)]
    held_parts += [rows.gpu == gpu for gpu in np.unique(rows.gpu)]
    scores: list[float] = []
    for held in held_parts:
        if held.any() and not held.all():
            asked = rows.where(held)
            step, log_sd = MultiGpuModel(rows.where(~held)).predict(asked)
            scores += [float(z) for z in np.log(asked.step_s / step) / log_sd]
    return scores
