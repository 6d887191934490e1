"""Scaling over GPUs of one and several servers: rows, GPU counts and GPU types left out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from accuracy_checks.checking import Cells, Check, Planner, Plot, pool, write_fold
from accuracy_checks.replay import Replay, Run, Setting, as_rates
from sbtrain_perf.score import gavel

FIFTHS = 5
UNSAID_BATCH = 128  # of networks of which the source gives none


def _fifth(row: Cells) -> int:
    text = "|".join(row.values()).encode()
    return hashlib.blake2b(text, digest_size=2).digest()[0] % FIFTHS


def _held(data: Path, folder: Path, keep: Callable[[Cells], bool]) -> tuple[Path, Path]:
    def side(row: Cells) -> str:
        return "score" if row["num_gpus"] != "1" and keep(row) else "fit"

    return write_fold(data, folder, {gavel.FILE: side})


def _folds(data: Path, scratch: Path) -> dict[str, list[tuple[Path, Path]]]:
    return {
        "rows left out": [
            _held(data, scratch / f"fifth-{i}", lambda row, i=i: _fifth(row) == i)
            for i in range(FIFTHS)
        ],
        "8 GPUs from 2 and 4": [
            _held(data, scratch / "eight", lambda row: row["num_gpus"] == "8")
        ],
        "unseen GPU type": [
            _held(data, scratch / gpu, lambda row, gpu=gpu: row["gpu"] == gpu)
            for gpu in ("K80", "P100")
        ],
    }


def plots(data: Path, scratch: Path) -> list[Plot]:
    series = {
        what: [point for fold in folds for point in gavel.points(*fold)["ours"]]
        for what, folds in _folds(data, scratch).items()
    }
    return [
        Plot(name="gavel", title="Throughput on 2 to 8 GPUs", unit="steps/s", series=series)
    ]


def _planned(folds: Sequence[tuple[Path, Path]]) -> Planner:
    points = []
    for fit, held in folds:
        fitted = gavel.read_rates(fit)
        scored = [rate for rate in gavel.read_rates(held) if rate.gpus > 1]
        replay = Replay([(rate.what.gpu, _setting(rate).gpus) for rate in (*fitted, *scored)])
        learnt = replay.learnt([Run(setting=_setting(r), step_s=r.step_s) for r in fitted])
        points += as_rates(replay.steps([(_setting(r), r.step_s) for r in scored], learnt))
    return Planner.of(points, note="takes GPUs of one node to cost no communication")


def _setting(rate: gavel.Rate) -> Setting:
    """Packed: all GPUs of one node; else one of each node."""
    gpus = rate.gpus if rate.packed else 1
    what = rate.what
    return Setting(
        workload=f"{what.source} {what.network}",
        gpu=what.gpu,
        nodes=1 if rate.packed else rate.gpus,
        gpus=gpus,
        batch=round((what.batch or UNSAID_BATCH) * gpus),
    )


def checks(data: Path, scratch: Path) -> list[Check]:
    lines = []
    for what, folds in _folds(data, scratch).items():
        scores = [score for fold in folds for score in gavel.score(*fold)]
        ours = pool(scores, group="all")
        linear = pool(scores, group="all", model="linear scaling")
        lines.append(
            Check(
                what=f"multi-GPU, {what}",
                value=ours.mape,
                planner=_planned(folds),
                n=ours.n,
                coverage90=ours.coverage90,
                yardstick=f"linear scaling {linear.mape:.1f}",
            )
        )
    return lines
