"""The planner's own all-reduce step, as refit fits it: learnt on few nodes, asked for more."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accuracy_checks.checking import Check, Planner
from sbtrain_perf.coefficients import load_coefficients
from sbtrain_perf.fitting.allreduce import StepRows
from sbtrain_perf.fitting.conformal import NORMAL_90, log_estimate
from sbtrain_perf.group_fits import PRIOR_SD
from sbtrain_perf.models.allreduce import hops, link_loads, transfers
from sbtrain_perf.score import pollux
from sbtrain_perf.score.metrics import Point, summarise
from sbtrain_perf.score.tables import read_table
from sbtrain_perf.shrinkage import fit_terms, spread_of_fit

Floats = NDArray[np.float64]

SHIPPED = load_coefficients().base
SHARPNESS = SHIPPED.allreduce.sharpness.value
SYNC_SHARE = 0.3  # of the one-node step: a guess at transfer, held as loosely as refit does


def checks(data: Path, scratch: Path) -> list[Check]:
    curves = _curves(pollux.step_rows(read_table(data, pollux.FILE)))
    lines = []
    for fitted, asked in (((1, 2), "3 to 6"), ((1, 2, 4), "3 and 6")):
        ours = [point for curve in curves for point in _points(curve, fitted)]
        ring = [point for curve in curves for point in _points(curve, fitted, ring=True)]
        score = summarise("all", "ours", ours)
        said = ", ".join(map(str, fitted))
        lines.append(
            Check(
                what=f"planner's all-reduce step, runs on {said} nodes, asked for {asked}",
                value=None,
                planner=Planner.of(ours, note="the form alone, curve by curve"),
                n=score.n,
                yardstick=f"compute plus a ring {summarise('all', 'ring', ring).mape:.1f}",
            )
        )
    return lines


def _curves(rows: StepRows) -> list[StepRows]:
    """Of one workload, batch and number of GPUs a node: as many on every node."""
    even = rows.where(rows.most_gpus == rows.fewest_gpus)
    keys = sorted(set(zip(even.workload, even.batch, even.most_gpus, strict=True)))
    return [
        even.where((even.workload == name) & (even.batch == batch) & (even.most_gpus == gpus))
        for name, batch, gpus in keys
    ]


def _points(curve: StepRows, fitted: tuple[int, ...], *, ring: bool = False) -> list[Point]:
    seen = np.isin(curve.nodes, fitted)
    if len(set(curve.nodes[seen])) < len(fitted) or seen.all():
        return []
    power = 1.0 if ring else SHARPNESS
    features = _features(curve, ring=ring) ** power
    alone_s = float(curve.step_s[curve.nodes == 1][0])
    prior = np.array((alone_s, SYNC_SHARE * alone_s, SHIPPED.allreduce.hop_s.value))
    prior_sd = np.array(PRIOR_SD["step"])
    known, measured = features[seen], curve.step_s[seen]
    terms = fit_terms(known, measured, prior, prior_sd=prior_sd, power=power)
    own = SHIPPED.spread
    spread = spread_of_fit(
        known,
        measured,
        terms,
        prior_sd=prior_sd,
        cold_sd=np.array((own.compute.value, own.transfer.value, own.hop.value)),
        usual_sd=own.run.value,
        usual_samples=own.noise_samples.value,
        power=power,
    )
    points = []
    for nodes, row, seconds in zip(
        curve.nodes[~seen], features[~seen], curve.step_s[~seen], strict=True
    ):
        parts = row * terms**power
        shares = parts / parts.sum()
        beyond = max(math.log2(nodes / max(fitted)), 0.0) * own.doubling.value
        variance = shares @ spread.covariance @ shares + spread.noise_sd**2 + beyond**2
        mean = math.log(parts.sum()) / power
        estimate = log_estimate(mean, math.sqrt(variance), factor=NORMAL_90)
        points.append(Point.of(estimate, measured=float(seconds), label=str(nodes)))
    return points


def _features(curve: StepRows, *, ring: bool) -> Floats:
    """How often a step takes each term, shape (rows, 3)."""
    nodes = curve.nodes
    moved = transfers(nodes, loads=link_loads(curve.most_gpus))
    if ring:
        moved = 2.0 * (nodes - 1.0) / nodes
    return np.stack((np.ones(len(nodes)), np.asarray(moved), np.asarray(hops(nodes))), axis=1)
