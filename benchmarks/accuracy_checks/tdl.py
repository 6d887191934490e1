"""Transient-learning runs: experiments, configurations and larger clusters left out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from accuracy_checks.checking import Cells, Check, Plot, pool, values, write_fold
from sbtrain_perf.score import tdl
from sbtrain_perf.score.scoring import GroupScore

JOBS = "tdl/training_jobs.csv"
FEATURES = (
    "cmdare/models.csv",
    "cmdare/speed_single_worker.csv",
    "cmdare/speed_base_k80_p100_v100.csv",
)
MIXED = "mixed_gpu"
FITTED_WORKERS = 4


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
    experiments = {name: tdl.score(fit, held) for name, fit, held in _folds(data, scratch)}
    configurations = [
        score
        for fit, held in _without_a_configuration(data, scratch)
        for score in tdl.score(fit, held)
    ]
    larger = tdl.score(*_more_workers(data, scratch))
    all_left_out = [score for scores in experiments.values() for score in scores]
    return [
        *(
            _line(f"tdl, unseen experiment, {name}", scores, mixed=name.startswith(MIXED))
            for name, scores in experiments.items()
        ),
        _line("tdl, unseen experiment, all", all_left_out, held_to=True),
        _line("tdl, unseen configuration, all", configurations, held_to=True),
        _line("tdl, fit n <= 4 workers, score 5 to 8", larger, bar=8.0),
    ]


def _without_a_configuration(data: Path, scratch: Path) -> Iterator[tuple[Path, Path]]:
    for experiment in values(data, JOBS, "experiment"):
        for config in values(data, JOBS, "config"):
            left_out = (experiment, config)

            def side(row: Cells, left_out: tuple[str, str] = left_out) -> str:
                return "score" if (row["experiment"], row["config"]) == left_out else "fit"

            fit, held = write_fold(
                data, scratch / experiment / config, {JOBS: side}, whole=FEATURES
            )
            if tdl.read_runs(held):
                yield fit, held


def _more_workers(data: Path, scratch: Path) -> tuple[Path, Path]:
    def side(row: Cells) -> str:
        workers = sum(float(row[name] or 0) for name in tdl.GPUS)
        return "fit" if workers <= FITTED_WORKERS else "score"

    return write_fold(data, scratch / "larger", {JOBS: side}, whole=FEATURES)


def _line(
    what: str,
    scores: Sequence[GroupScore],
    *,
    bar: float | None = None,
    mixed: bool = False,
    held_to: bool = False,
) -> Check:
    """Over all groups. Few configurations stand or fall together: only all experiments at
    once can be held to a coverage."""
    ours = pool(scores)
    sums = pool(scores, model="sum-of-speeds")
    return Check(
        what=what,
        value=ours.mape,
        bar=6.0 if mixed else bar,
        n=ours.n,
        coverage90=ours.coverage90,
        check_coverage=held_to or mixed,
        yardstick=f"sum of speeds {sums.mape:.1f}",
    )
