"""tdl: whole training runs of ResNet-32, with mixed GPUs, remote workers and revocations."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from sbtrain_perf.fitting.conformal import NORMAL_90, conformal_factor
from sbtrain_perf.fitting.parameter_server import (
    VAGUE_SHARPNESS,
    Belief,
    ClusterRun,
    ServerFit,
    ServerPriors,
    fit_servers,
)
from sbtrain_perf.score.cmdare import Cnn, log_steps, read_cnns, served
from sbtrain_perf.score.metrics import Point, summarise
from sbtrain_perf.score.scoring import GroupScore
from sbtrain_perf.score.tables import Row, ScoreError, read_table

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
TAIL_LEVEL = 0.95  # each side of a 90 % interval


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """A line of training_jobs.csv: mean updates a second over the whole run."""

    experiment: str
    run: ClusterRun

    @property
    def spot(self) -> bool:
        return "spot" in self.experiment

    @property
    def remote(self) -> bool:
        return any("@" in kind for kind, _ in self.run.workers)


def read_runs(folder: Path) -> list[TrainingRun]:
    return [
        TrainingRun(
            experiment=row.text("experiment"),
            run=ClusterRun(
                network=NETWORK,
                workers=_workers(row),
                servers=row.whole("n_ps"),
                updates_1_s=row.number("avg_steps_s"),
            ),
        )
        for row in read_table(folder, "tdl/training_jobs.csv")
    ]


def _workers(row: Row) -> tuple[tuple[str, int], ...]:
    counts = {gpu: row.whole(column) for column, gpu in GPUS.items() if row.optional(column)}
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
    fit = _fit(fitted, cnns, steps)
    scatter = _scatter(fitted)
    scores = _left_out(fitted, cnns, steps, scatter)
    cold = _fit([], cnns, steps)
    experiments = {row.experiment for row in fitted}
    still = {False: 0.0, True: 0.0}
    return {
        "ours": [
            _estimate(fit, row, scatter, scores, experiments=experiments) for row in scored
        ],
        "ours-cold": [_estimate(cold, row, still, {}, experiments=set()) for row in scored],
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


def _fit(
    rows: Sequence[TrainingRun],
    cnns: Mapping[str, Cnn],
    steps: Mapping[tuple[str, str], Belief],
) -> ServerFit:
    """Runs of one make-up are one observation: the median, spot runs' undisturbed part."""
    runs = [
        ClusterRun(
            network=NETWORK,
            workers=workers,
            servers=servers,
            updates_1_s=_quantile(speeds, UNDISTURBED_QUANTILE if spot else 0.5),
        )
        for (spot, servers, workers), speeds in _alike(rows).items()
    ]
    priors = replace(ServerPriors(), log_sharpness=VAGUE_SHARPNESS)
    return fit_servers(runs, [served(cnns, NETWORK)], steps, priors=priors)


def _quantile(values: Sequence[float], level: float) -> float:
    if len(values) < 4:
        return statistics.median(values)
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return cuts[round(100 * level) - 1]


def _left_out(
    fitted: Sequence[TrainingRun],
    cnns: Mapping[str, Cnn],
    steps: Mapping[tuple[str, str], Belief],
    scatter: Mapping[bool, float],
) -> dict[bool, list[float]]:
    """Signed error over spread of each run whose experiment was left out; by spot or not."""
    scores: dict[bool, list[float]] = {}
    for experiment in dict.fromkeys(row.experiment for row in fitted):
        kept = [row for row in fitted if row.experiment != experiment]
        if not kept:
            continue
        fit = _fit(kept, cnns, steps)
        for row in (row for row in fitted if row.experiment == experiment):
            law = fit.log_law(row.run)
            error = math.log(row.run.updates_1_s) - law.mean
            scores.setdefault(row.spot, []).append(
                error / math.hypot(law.sd, scatter[row.remote])
            )
    return scores


def _estimate(
    fit: ServerFit,
    row: TrainingRun,
    scatter: Mapping[bool, float],
    scores: Mapping[bool, Sequence[float]],
    *,
    experiments: Set[str],
) -> Point:
    """Revocations only slow a run down, so that the two sides have factors of their own."""
    law = fit.log_law(row.run)
    unseen = 0.0 if row.experiment in experiments else UNSEEN_EXPERIMENT_SD
    sd = math.hypot(law.sd, scatter[row.remote], unseen)
    known = scores.get(row.spot, ())
    below = _one_sided([-score for score in known])
    above = _one_sided(known)
    return Point(
        measured=row.run.updates_1_s,
        predicted=math.exp(law.mean),
        low=math.exp(law.mean - below * sd),
        high=math.exp(law.mean + above * sd),
        label=f"{row.experiment} {row.run.workers}",
    )


def _one_sided(scores: Sequence[float]) -> float:
    if not scores:
        return NORMAL_90
    return conformal_factor([max(score, 0.0) for score in scores], level=TAIL_LEVEL)


def _sum_of_speeds(run: ClusterRun, near: Mapping[tuple[str, str], Belief]) -> float:
    """As the papers have it: near or far, a worker adds its own speed."""
    return sum(
        count / math.exp(near[NETWORK, kind.partition("@")[0]].mean)
        for kind, count in run.workers
    )
