"""Multi-GPU throughputs of the Gavel artifact on K80, P100 and V100, packed and spread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.fitting.conformal import NORMAL_90, conformal_factor
from sbtrain_perf.fitting.multi_gpu import MultiGpuModel, ScalingRows
from sbtrain_perf.score.metrics import Point, summarise
from sbtrain_perf.score.one_gpu_rates import OneGpu, OneGpuRates
from sbtrain_perf.score.tables import (
    MOST_WORKERS,
    ScoreError,
    ScoreRow,
    nothing_to_fit,
    read_table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sbtrain_perf.score.scoring import GroupScore

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
    """Points in total steps per second by model, labelled by GPU type, one for every
    multi-GPU row that ran. One-GPU rates come from --fit alone; where it lacks a row's own,
    the nearest that it has stands in, and the interval is wider by how far off that is.

    Raises:
        ScoreError: --fit has no rate of one GPU, or none of several, to go by; or nothing
            is to be scored.
    """
    many = [rate for rate in read_rates(score_dir) if rate.gpus > 1]
    if not many:
        raise ScoreError(
            f"--score: {score_dir} has no rows of {NAME} to score in {FILE}",
            hint="scored are runs on several GPUs that did not fail (steps_per_s above 0)",
        )
    fitted = read_rates(fit_dir)
    alone = OneGpuRates((rate.what, rate.step_s) for rate in fitted if rate.gpus == 1)
    if not len(alone):
        raise nothing_to_fit(fit_dir, FILE, what="rates of one GPU")
    known = _known_rows([rate for rate in fitted if rate.gpus > 1], alone)
    if not len(known):
        raise nothing_to_fit(fit_dir, FILE, what="rates of several GPUs")
    asked = _scaling_rows(many, alone)
    step, log_sd = MultiGpuModel(known).predict(asked)
    doubt = NORMAL_90 * np.array([alone.belief(rate.what).sd for rate in many])
    reach = np.exp(np.hypot(conformal_factor(_left_out_scores(known)) * log_sd, doubt))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A run that ran. step_s: seconds of one replica's step."""

    what: OneGpu
    gpus: int
    packed: bool
    step_s: float


def read_rates(folder: Path) -> list[Rate]:
    """Rows that ran: the artifact writes 0 for what failed. steps_per_s is the sum over
    GPUs, so one replica's step is num_gpus / steps_per_s."""
    return [_rate(row) for row in read_table(folder, FILE) if _ran(row)]


def _ran(row: ScoreRow) -> bool:
    return bool(row.text("steps_per_s")) and row.number("steps_per_s") != 0.0


def _rate(row: ScoreRow) -> Rate:
    gpus = row.whole("num_gpus", most=MOST_WORKERS)
    return Rate(
        what=OneGpu(
            source=row.name("source_file"),
            gpu=row.name("gpu"),
            network=row.name("model"),
            batch=row.optional_positive("batch_size_per_gpu"),
        ),
        gpus=gpus,
        packed=row.flag("consolidated"),
        step_s=gpus / row.positive("steps_per_s"),
    )


def _known_rows(rates: Sequence[Rate], alone: OneGpuRates) -> ScalingRows:
    """To fit: rows whose own one-GPU rate is known, or all where no row's is."""
    own = [rate for rate in rates if alone.belief(rate.what).sd == 0.0]
    return _scaling_rows(own or rates, alone)


def _scaling_rows(rates: Sequence[Rate], alone: OneGpuRates) -> ScalingRows:
    return ScalingRows(
        network=np.array([rate.what.network for rate in rates], dtype=np.str_),
        gpu=np.array([rate.what.gpu for rate in rates], dtype=np.str_),
        gpus=np.array([float(rate.gpus) for rate in rates]),
        packed=np.array([rate.packed for rate in rates], dtype=np.bool_),
        alone_s=np.array([alone.step_s(rate.what) for rate in rates]),
        step_s=np.array([rate.step_s for rate in rates]),
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
