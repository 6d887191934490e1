"""tdl: whole training runs of ResNet-32, with mixed GPUs, remote workers and revocations."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sbtrain_perf.fitting.conformal import NORMAL_90, conformal_factor
from sbtrain_perf.fitting.lost_workers import SpotRun, revocation_rate_1_h, shares_left
from sbtrain_perf.fitting.parameter_server import Belief, ClusterRun, ServerFit, fit_servers
from sbtrain_perf.score.cmdare import Cnn, log_steps, read_cnns, served
from sbtrain_perf.score.metrics import Point, summarise
from sbtrain_perf.score.scoring import GroupScore
from sbtrain_perf.score.tables import MOST_SERVERS, ScoreError, ScoreRow, read_table

NAME = "tdl"
NETWORK = "resnet32"  # the only one of these runs
GPUS = {"n_k80": "K80", "n_p100": "P100", "n_v100": "V100"}
PLACES = re.compile(r"(?:\d+[ecw])+")  # e.g. 2e1c1w: workers in us-east, us-central, us-west
SERVER_PLACE = "e"
# What a continent's round trip adds to a step, before the first run: 30 to 70 ms, four times.
REMOTE_EXTRA_S = 0.2
REMOTE_LOG_SD = 0.35
# Of alike spot runs, the speed at this quantile: revoked ones are among the slower.
UNDISTURBED_QUANTILE = 0.75
# An experiment that was never run differs from the others by this much of log speed.
UNSEEN_EXPERIMENT_SD = 0.025
USUAL_STEPS = 64_000.0  # of a run, where no run is known: what these experiments trained for
MOST_GPUS = 1_000  # of one type in one run
DRAWS = 4_000
SEED = 20200708


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """A line of training_jobs.csv: mean updates a second over the whole run."""

    experiment: str
    run: ClusterRun
    steps: float  # updates of the whole run, nan where it is to be predicted

    @property
    def workers(self) -> int:
        return sum(count for _, count in self.run.workers)

    @property
    def spot(self) -> bool:
        return "spot" in self.experiment

    @property
    def remote(self) -> bool:
        return any("@" in kind for kind, _ in self.run.workers)


def read_runs(folder: Path) -> list[TrainingRun]:
    return [
        TrainingRun(
            experiment=row.name("experiment"),
            run=ClusterRun(
                network=NETWORK,
                workers=_workers(row),
                servers=row.whole("n_ps", most=MOST_SERVERS),
                updates_1_s=row.positive("avg_steps_s"),
            ),
            steps=row.positive("avg_steps_s")
            * (row.optional_positive("duration_s") or math.nan),
        )
        for row in read_table(folder, "tdl/training_jobs.csv")
    ]


def _workers(row: ScoreRow) -> tuple[tuple[str, int], ...]:
    given = {
        gpu: row.optional_whole(column, least=0, most=MOST_GPUS) for column, gpu in GPUS.items()
    }
    counts = {gpu: count for gpu, count in given.items() if count}
    if not counts:
        raise ScoreError(f"{row.source}: a run without workers", hint="see its n_<gpu> columns")
    config = row.text("config")
    if len(counts) == 1 and PLACES.fullmatch(config):
        ((gpu, total),) = counts.items()
        places = {place: int(n) for n, place in re.findall(r"(\d+)([ecw])", config)}
        if sum(places.values()) == total:
            return tuple(
                (gpu if place == SERVER_PLACE else f"{gpu}@{place}", count)
                for place, count in places.items()
                if count
            )
    return tuple(counts.items())


def score(fit_dir: Path, score_dir: Path) -> list[GroupScore]:
    """One group per experiment; error of a run's mean updates a second."""
    scored = read_runs(score_dir)
    predicted = points(fit_dir, score_dir)
    scores = []
    for experiment in dict.fromkeys(run.experiment for run in scored):
        for model, rows in predicted.items():
            kept = [
                point
                for run, point in zip(scored, rows, strict=True)
                if run.experiment == experiment
            ]
            scores.append(summarise(experiment, model, kept))
    return scores


def points(fit_dir: Path, score_dir: Path) -> dict[str, list[Point]]:
    """Every model's prediction of every scored run, in the file's order."""
    fitted, scored = read_runs(fit_dir), read_runs(score_dir)
    if not scored:
        return {}
    cnns = read_cnns(fit_dir, score_dir)
    kinds = sorted({kind for row in [*fitted, *scored] for kind, _ in row.run.workers})
    gpus = sorted({kind.partition("@")[0] for kind in kinds})
    near = log_steps([(NETWORK, gpu) for gpu in gpus], cnns, fit_dir, score_dir)
    steps = {(NETWORK, kind): _belief(kind, near) for kind in kinds}
    experiments = {row.experiment for row in fitted}
    warm = _predictor(fitted, cnns, steps)
    cold = _predictor([], cnns, steps)
    return {
        "ours": [warm.point(row, seen=row.experiment in experiments) for row in scored],
        "ours-cold": [cold.point(row, seen=True) for row in scored],
        "sum-of-speeds": [
            Point(measured=row.run.updates_1_s, predicted=_sum_of_speeds(row.run, near))
            for row in scored
        ],
    }


def _belief(kind: str, near: Mapping[tuple[str, str], Belief]) -> Belief:
    gpu, _, place = kind.partition("@")
    here = near[NETWORK, gpu]
    if not place:
        return here
    return Belief(mean=math.log(math.exp(here.mean) + REMOTE_EXTRA_S), sd=REMOTE_LOG_SD)


MakeUp = tuple[bool, int, tuple[tuple[str, int], ...]]  # spot, servers, workers


def _alike(rows: Sequence[TrainingRun]) -> dict[MakeUp, list[float]]:
    """Speeds of the runs of one make-up."""
    alike: dict[MakeUp, list[float]] = {}
    for row in rows:
        key = (row.spot, row.run.servers, row.run.workers)
        alike.setdefault(key, []).append(row.run.updates_1_s)
    return alike


def _scatter(rows: Sequence[TrainingRun]) -> dict[bool, float]:
    """Standard deviation of log speed among alike undisturbed runs; by remote or not."""
    result = {}
    for remote in (False, True):
        kept = [row for row in rows if row.remote == remote and not row.spot]
        logs = [list(map(math.log, speeds)) for speeds in _alike(kept).values()]
        squares = sum(statistics.variance(v) * (len(v) - 1) for v in logs if len(v) > 1)
        freedom = sum(len(v) - 1 for v in logs)
        result[remote] = math.sqrt(squares / freedom) if freedom else 0.0
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedOfLeftOut:
    """factor widens the spread of a make-up's level to what left-out experiments ask for."""

    fit: ServerFit
    scatter: Mapping[bool, float]
    steps: float
    rate_1_h: float
    factor: float = NORMAL_90

    def level(self, run: ClusterRun, *, seen: bool) -> Belief:
        """Log speed of undisturbed runs of one make-up, in an experiment known or not."""
        law = self.fit.log_law(run)
        unseen = 0.0 if seen else UNSEEN_EXPERIMENT_SD
        return Belief(mean=law.mean, sd=math.hypot(law.sd, unseen))

    def point(self, row: TrainingRun, *, seen: bool) -> Point:
        """The median, and the 5 % and 95 % quantiles of what revocations leave."""
        level = self.level(row.run, seen=seen)
        random = np.random.default_rng(SEED)
        widened = level.sd * self.factor / NORMAL_90
        sd = math.hypot(widened, self.scatter[row.remote])
        logs = level.mean + sd * random.standard_normal(DRAWS)
        if row.spot:
            left = shares_left(
                self.rate_1_h,
                workers=row.workers,
                hours=self.steps / math.exp(level.mean) / 3600.0,
                draws=DRAWS,
                random=random,
            )
            logs = logs + np.log(left)
        low, middle, high = np.exp(np.quantile(logs, [0.05, 0.5, 0.95]))
        return Point(
            measured=row.run.updates_1_s,
            predicted=float(middle),
            low=float(low),
            high=float(high),
            label=f"{row.experiment} {row.run.workers}",
        )


def _predictor(
    rows: Sequence[TrainingRun],
    cnns: Mapping[str, Cnn],
    steps: Mapping[tuple[str, str], Belief],
) -> SpeedOfLeftOut:
    """The fit, calibrated by leaving one experiment out after the other."""
    whole = _uncalibrated(rows, cnns, steps)
    scores = []
    for experiment in dict.fromkeys(row.experiment for row in rows):
        kept = [row for row in rows if row.experiment != experiment]
        held = [row for row in rows if row.experiment == experiment]
        if kept:
            part = _uncalibrated(kept, cnns, steps)
            for run in _levels(held):
                level = part.level(run, seen=False)
                scores.append((math.log(run.updates_1_s) - level.mean) / level.sd)
    return replace(whole, factor=conformal_factor(scores))


def _uncalibrated(
    rows: Sequence[TrainingRun],
    cnns: Mapping[str, Cnn],
    steps: Mapping[tuple[str, str], Belief],
) -> SpeedOfLeftOut:
    lengths = [row.steps for row in rows if math.isfinite(row.steps)]
    length = statistics.median(lengths) if lengths else USUAL_STEPS
    spot = [
        SpotRun(
            workers=sum(count for _, count in workers),
            hours=length / level / 3600.0,
            share=speed / level,
        )
        for (spot, _, workers), speeds in _alike(rows).items()
        if spot
        for level in [_quantile(speeds, UNDISTURBED_QUANTILE)]
        for speed in speeds
    ]
    return SpeedOfLeftOut(
        fit=fit_servers(_levels(rows), [served(cnns, NETWORK)], steps),
        scatter=_scatter(rows),
        steps=length,
        rate_1_h=revocation_rate_1_h(spot),
    )


def _levels(rows: Sequence[TrainingRun]) -> list[ClusterRun]:
    """Runs of one make-up as one observation: the median, spot runs' undisturbed part."""
    return [
        ClusterRun(
            network=NETWORK,
            workers=workers,
            servers=servers,
            updates_1_s=_quantile(speeds, UNDISTURBED_QUANTILE if spot else 0.5),
        )
        for (spot, servers, workers), speeds in _alike(rows).items()
    ]


def _quantile(values: Sequence[float], level: float) -> float:
    if len(values) < 4:
        return statistics.median(values)
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[round(100 * level) - 1]


def _sum_of_speeds(run: ClusterRun, near: Mapping[tuple[str, str], Belief]) -> float:
    """As the papers have it: near or far, a worker adds its own speed."""
    return sum(
        count / math.exp(near[NETWORK, kind.partition("@")[0]].mean)
        for kind, count in run.workers
    )
