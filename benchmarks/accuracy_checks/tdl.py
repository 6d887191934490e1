"""Transient-learning runs: an experiment is predicted from the others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from accuracy_checks.checking import Check, Plot, pool, values, write_fold
from sbtrain_perf.score import tdl

JOBS = "tdl/training_jobs.csv"
FEATURES = (
    "cmdare/models.csv",
    "cmdare/speed_single_worker.csv",
    "cmdare/speed_base_k80_p100_v100.csv",
)
MIXED = "mixed_gpu"


def _folds(data: Path, scratch: Path) -> Iterator[tuple[str, Path, Path]]:
    """(experiment, the others' folder, its own folder)"""
    for experiment in values(data, JOBS, "experiment"):
        files = {
            JOBS: lambda row, experiment=experiment: (
                "score" if row["experiment"] == experiment else "fit"
            )
        }
        yield (experiment, *write_fold(data, scratch / experiment, files, whole=FEATURES))


def plots(data: Path, scratch: Path) -> list[Plot]:
    series = {name: tdl.points(fit, held)["ours"] for name, fit, held in _folds(data, scratch)}
    return [
        Plot(
            name="tdl",
            title="Whole runs of ResNet-32, experiment left out",
            unit="updates/s",
            series=series,
        )
    ]


def checks(data: Path, scratch: Path) -> list[Check]:
    lines = []
    for experiment, fit, held in _folds(data, scratch):
        scores = tdl.score(fit, held)
        ours = pool(scores, group=experiment)
        sums = pool(scores, group=experiment, model="sum-of-speeds")
        lines.append(
            Check(
                what=f"tdl, unseen experiment, {experiment}",
                value=ours.mape,
                bar=6.0 if experiment.startswith(MIXED) else None,
                n=ours.n,
                coverage90=ours.coverage90,
                check_coverage=experiment.startswith(MIXED),
                yardstick=f"sum of speeds {sums.mape:.1f}",
            )
        )
    return lines
