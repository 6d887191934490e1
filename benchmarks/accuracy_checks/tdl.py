"""Transient-learning runs: an experiment is predicted from the others."""

from __future__ import annotations

from pathlib import Path

from accuracy_checks.checking import Check, pool, values, write_fold
from sbtrain_perf.score import tdl

JOBS = "tdl/training_jobs.csv"
FEATURES = (
    "cmdare/models.csv",
    "cmdare/speed_single_worker.csv",
    "cmdare/speed_base_k80_p100_v100.csv",
)
MIXED = "mixed_gpu"


def checks(data: Path, scratch: Path) -> list[Check]:
    lines = []
    for experiment in values(data, JOBS, "experiment"):
        files = {
            JOBS: lambda row, experiment=experiment: (
                "score" if row["experiment"] == experiment else "fit"
            )
        }
        folder = scratch / experiment
        scores = tdl.score(*write_fold(data, folder, files, whole=FEATURES))
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
