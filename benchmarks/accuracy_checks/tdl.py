"""Transient-learning runs: experiments, configurations and larger clusters left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from accuracy_checks.checking import Cells, Check, Planner, Plot, pool, values, write_fold
from accuracy_checks.cmdare import setting
from accuracy_checks.replay import Replay, Run, Setting, as_rates
from sbtrain_perf.score import tdl
from sbtrain_perf.score.cmdare import Cnn, read_cnns
from sbtrain_perf.score.metrics import Point
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
    planned = _Planned(data)
    of_experiment = {name: planned.without_experiment(name) for name in experiments}
    every = [point for points in of_experiment.values() for point in points]
    return [
        *(
            _line(
                f"tdl, unseen experiment, {name}",
                scores,
                planned.of(of_experiment[name], spot="spot" in name),
                mixed=name.startswith(MIXED),
            )
            for name, scores in experiments.items()
        ),
        _line("tdl, unseen experiment, all", all_left_out, planned.of(every), held_to=True),
        _line(
            "tdl, unseen configuration, all",
            configurations,
            planned.of(planned.without_configuration()),
            held_to=True,
        ),
        _line(
            "tdl, fit n <= 4 workers, score 5 to 8",
            larger,
            planned.of(planned.more_workers()),
            bar=8.0,
        ),
    ]


class _Planned:
    """The runs as the planner would plan them, but for those whose workers are in several
    regions or of several kinds: no partition of a site file is like that."""

    def __init__(self, data: Path) -> None:
        self._cnns = read_cnns(data, data)
        runs = [run for run in tdl.read_runs(data) if len(run.run.workers) == 1]
        self._runs = [(run, _setting(self._cnns, run)) for run in runs if not run.remote]
        self._replay = Replay([(where.gpu, 1) for _, where in self._runs])

    def of(self, points: Sequence[Point], *, spot: bool = False) -> Planner:
        if not points:
            return Planner(note="no partition has workers in several regions")
        return Planner.of(points, note="as if no worker were revoked" if spot else "")

    def without_experiment(self, name: str) -> list[Point]:
        return self._points(lambda run, _: run.experiment == name)

    def without_configuration(self) -> list[Point]:
        keys = dict.fromkeys((run.experiment, where) for run, where in self._runs)
        return [
            point
            for experiment, left_out in keys
            for point in self._points(
                lambda run, setting, e=experiment, s=left_out: (
                    (run.experiment, setting) == (e, s)
                )
            )
        ]

    def more_workers(self) -> list[Point]:
        return self._points(lambda run, _: run.workers > FITTED_WORKERS)

    def _points(self, held: Callable[[tdl.TrainingRun, Setting], bool]) -> list[Point]:
        fitted, scored = [], []
        for run, where in self._runs:
            step_s = 1.0 / run.run.updates_1_s
            if held(run, where):
                scored.append((where, step_s))
            else:
                fitted.append(Run(setting=where, step_s=step_s))
        return as_rates(self._replay.steps(scored, self._replay.learnt(fitted)))


def _setting(cnns: Mapping[str, Cnn], run: tdl.TrainingRun) -> Setting:
    ((gpu, workers),) = run.run.workers
    return setting(cnns, tdl.NETWORK, gpu, workers=workers, servers=run.run.servers)


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
    planner: Planner,
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
        planner=planner,
        bar=6.0 if mixed else bar,
        n=ours.n,
        coverage90=ours.coverage90,
        check_coverage=held_to or mixed,
        yardstick=f"sum of speeds {sums.mape:.1f}",
    )
