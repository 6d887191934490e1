"""cmdare-cluster: speed of parameter-server clusters at sizes that the fit has not seen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from sbtrain_perf.fitting.parameter_server import (
    Belief,
    ClusterRun,
    ServerFit,
    calibrated,
    fit_servers,
)
from sbtrain_perf.models.parameter_server import server_s, shared_server_s, updates_1_s
from sbtrain_perf.score.cmdare import Cnn, cnn_of, log_steps, read_cnns, served
from sbtrain_perf.score.metrics import Point, summarise
from sbtrain_perf.score.scoring import GroupScore
from sbtrain_perf.score.tables import MOST_SERVERS, MOST_WORKERS, read_table

NAME = "cmdare-cluster"
GROUPS = ("K80/1", "P100/1", "P100/2")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """A line of speed_cluster.csv."""

    gpu: str
    model: str
    servers: int
    workers: int
    speed_1_s: float

    @property
    def group(self) -> str:
        return f"{self.gpu}/{self.servers}"

    @property
    def run(self) -> ClusterRun:
        return ClusterRun(
            network=self.model,
            workers=((self.gpu, self.workers),),
            servers=self.servers,
            updates_1_s=self.speed_1_s,
        )


def read_clusters(folder: Path) -> list[ClusterRow]:
    return [
        ClusterRow(
            gpu=row.name("gpu"),
            model=row.name("model"),
            servers=row.whole("n_ps", most=MOST_SERVERS),
            workers=row.whole("n_workers", most=MOST_WORKERS),
            speed_1_s=row.positive("speed_mean_steps_s"),
        )
        for row in read_table(folder, "cmdare/speed_cluster.csv")
    ]


def score(fit_dir: Path, score_dir: Path) -> list[GroupScore]:
    """Groups all, GPU/servers, and one per network; error of updates a second."""
    predicted = points(fit_dir, score_dir)
    clusters = read_clusters(score_dir)
    found = {cluster.group for cluster in clusters}
    groups = ["all", *(g for g in GROUPS if g in found), *sorted(found - set(GROUPS))]
    groups += dict.fromkeys(f"workload {cluster.model}" for cluster in clusters)
    scores = []
    for group in groups:
        for model, rows in predicted.items():
            kept = [
                point
                for cluster, point in zip(clusters, rows, strict=True)
                if group in ("all", cluster.group, f"workload {cluster.model}")
            ]
            scores.append(summarise(group, model, kept))
    return scores


def points(fit_dir: Path, score_dir: Path) -> dict[str, list[Point]]:
    """Every model's prediction of every scored row, in the file's order."""
    fitted, scored = read_clusters(fit_dir), read_clusters(score_dir)
    if not scored:
        return {}
    cnns = read_cnns(fit_dir, score_dir)
    pairs = sorted({(c.model, c.gpu) for c in [*fitted, *scored]})
    steps = log_steps(pairs, cnns, fit_dir, score_dir)
    return {
        "ours": _ours(fit_clusters(fitted, pairs, cnns, steps), scored),
        "four-constants": _plain(scored, _four_constants(fitted, cnns, steps)),
        "sum-of-speeds": _plain(
            scored, lambda c: c.workers / math.exp(steps[c.model, c.gpu].mean)
        ),
    }


def fit_clusters(
    fitted: Sequence[ClusterRow],
    pairs: Sequence[tuple[str, str]],
    cnns: Mapping[str, Cnn],
    steps: Mapping[tuple[str, str], Belief],
) -> ServerFit:
    """The fit, its intervals calibrated by leaving the largest cluster sizes out."""
    networks = [served(cnns, model) for model in sorted({model for model, _ in pairs})]

    def fit(rows: Sequence[ClusterRow]) -> ServerFit:
        return fit_servers([row.run for row in rows], networks, steps)

    sizes = sorted({cluster.workers for cluster in fitted})
    left_out = []
    for size in sizes[-2:]:
        kept = [cluster for cluster in fitted if cluster.workers < size]
        if kept:
            left_out.append((fit(kept), [c.run for c in fitted if c.workers >= size]))
    return calibrated(fit(fitted), left_out)


def _ours(fit: ServerFit, scored: Sequence[ClusterRow]) -> list[Point]:
    return [
        Point.of(
            fit.predict(cluster.run),
            measured=cluster.speed_1_s,
            label=f"{cluster.model} {cluster.group} x{cluster.workers}",
        )
        for cluster in scored
    ]


def _plain(scored: Sequence[ClusterRow], predict: Callable[[ClusterRow], float]) -> list[Point]:
    return [Point(measured=c.speed_1_s, predicted=predict(c), label=c.model) for c in scored]


def _four_constants(
    fitted: Sequence[ClusterRow],
    cnns: Mapping[str, Cnn],
    steps: Mapping[tuple[str, str], Belief],
) -> Callable[[ClusterRow], float]:
    """One capacity model for all networks: per tensor, per byte, sharing and sharpness."""

    def speed(constants: NDArray[np.float64], cluster: ClusterRow) -> float:
        network = cnn_of(cnns, cluster.model).network
        busy_s = server_s(
            network.parameters,
            network.tensors,
            tensor_s=math.exp(constants[0]),
            parameter_byte_s=math.exp(constants[1]),
        )
        shared_s = shared_server_s(busy_s, servers=cluster.servers, sharing=constants[2])
        demand_1_s = cluster.workers / math.exp(steps[cluster.model, cluster.gpu].mean)
        return float(updates_1_s(demand_1_s, shared_s, sharpness=math.exp(constants[3])))

    start = np.array([math.log(1e-4), math.log(1.5e-9), 0.5, math.log(4.0)])
    if len(fitted) < len(start):
        return lambda cluster: speed(start, cluster)
    low = np.array([-14.0, -25.0, 0.0, 0.0])
    high = np.array([-4.0, -15.0, 1.0, math.log(20.0)])
    found = least_squares(
        lambda c: [math.log(speed(c, row) / row.speed_1_s) for row in fitted],
        start,
        bounds=(low, high),
    )
    return lambda cluster: speed(found.x, cluster)
