"""Curves of the public data, each predicted from few of its own points.

Parameter servers (CM-DARE, transient learning): a GPU and a network, fitted on runs with few
workers, on top of its speed alone and the shipped priors. All-reduce (Pollux): a workload,
fitted on one and two nodes at three batch sizes; each batch size is a curve.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sbtrain_perf.fitting.allreduce import AllReduceModel, StepRows
from sbtrain_perf.fitting.parameter_server import Belief, ClusterRun, ServerFit, fit_servers
from sbtrain_perf.own_runs import own_log_ratio
from sbtrain_perf.regret.choosing import Curve, Option
from sbtrain_perf.score import cmdare_cluster, pollux, tdl
from sbtrain_perf.score.cmdare import Cnn, log_steps, read_cnns, served
from sbtrain_perf.score.tables import read_table

FEW_WORKERS = (1, 2, 4)
FIRST_SHAPES = ("1", "2", "4", "11", "22", "44")  # GPUs by node: one and two nodes
SERVER_FILES = {"cmdare": "cmdare/speed_cluster.csv", "tdl": "tdl/training_jobs.csv"}
LARGE_BATCH = 1500.0  # a first look at a workload stays under it
LEAST_OPTIONS = 3  # fewer say nothing about a choice


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """What was measured and is no curve to choose on, and why."""

    source: str
    name: str
    why: str


Looked = list[Curve | LeftOut]


def all_curves(data: Path) -> list[Curve]:
    """Curves of every source that the folder has."""
    return _curves(look(data))


def look(data: Path, *, few: Collection[int] = FEW_WORKERS) -> Looked:
    """Curves of every source that the folder has, and what it has that is none.

    Args:
        few: numbers of workers that the fits of parameter servers see.

    Raises:
        ScoreError: a cell is not what it must be.
    """
    return [
        *_look_at_servers(data, few=few, fitted_servers=None),
        *_look_at_allreduce(data),
    ]


def measured_workers(data: Path) -> list[int]:
    """The numbers of workers of the folder's parameter-server runs, ascending."""
    runs = [run for of_source in _server_runs(data).values() for run in of_source]
    return sorted({run.workers[0][1] for run in runs if len(run.workers) == 1})


def server_curves(
    data: Path,
    *,
    few: Collection[int] = FEW_WORKERS,
    fitted_servers: Collection[int] | None = None,
) -> list[Curve]:
    """One curve a GPU and network; options are workers x servers.

    fitted_servers: numbers of servers that the fits see; None: all.
    """
    return _curves(_look_at_servers(data, few=few, fitted_servers=fitted_servers))


def _curves(looked: Looked) -> list[Curve]:
    return [found for found in looked if isinstance(found, Curve)]


def _server_runs(data: Path) -> dict[str, list[ClusterRun]]:
    """Runs by source, without what revocations and distance slow down."""
    return {
        "cmdare": [row.run for row in cmdare_cluster.read_clusters(data)],
        "tdl": _medians(
            row.run for row in tdl.read_runs(data) if not row.spot and not row.remote
        ),
    }


def _look_at_servers(
    data: Path, *, few: Collection[int], fitted_servers: Collection[int] | None
) -> Looked:
    cnns = read_cnns(data, data)
    looked: Looked = []
    for source, of_source in _server_runs(data).items():
        by_curve: dict[tuple[str, str], list[ClusterRun]] = {}
        for run in of_source:
            if len(run.workers) == 1:
                by_curve.setdefault((run.network, run.workers[0][0]), []).append(run)
        if not by_curve and len(read_table(data, SERVER_FILES[source])):
            why = "all have spot or remote workers, or GPUs of several kinds"
            looked.append(LeftOut(source=source, name="runs", why=why))
        wide = {pair: own for pair, own in by_curve.items() if len(own) >= LEAST_OPTIONS}
        steps = log_steps(sorted(wide), cnns, data, data) if wide else {}
        for pair, own in by_curve.items():
            if pair not in wide:
                name = f"{pair[1]} {pair[0]}"
                looked.append(_too_few(source, name, len(own)))
                continue
            kept = [
                run
                for run in own
                if run.workers[0][1] in few
                and (fitted_servers is None or run.servers in fitted_servers)
            ]
            looked.append(_server_curve(source, pair, own, kept, cnns, steps))
    return looked


def _too_few(source: str, name: str, options: int) -> LeftOut:
    why = f"{options} measured, {LEAST_OPTIONS} needed to choose among"
    return LeftOut(source=source, name=name, why=why)


def _medians(runs: Iterable[ClusterRun]) -> list[ClusterRun]:
    """Runs of one make-up as one run of the median speed."""
    alike: dict[ClusterRun, list[float]] = {}
    for run in runs:
        alike.setdefault(replace(run, updates_1_s=0.0), []).append(run.updates_1_s)
    return [
        replace(run, updates_1_s=statistics.median(speeds), repeats=len(speeds))
        for run, speeds in alike.items()
    ]


def _server_curve(
    source: str,
    pair: tuple[str, str],
    own: Sequence[ClusterRun],
    kept: Sequence[ClusterRun],
    cnns: Mapping[str, Cnn],
    steps: Mapping[tuple[str, str], Belief],
) -> Curve:
    network, gpu = pair
    fit = fit_servers(kept, [served(cnns, network)], {pair: steps[pair]})
    options = []
    for run in own:
        workers = run.workers[0][1]
        options.append(
            Option(
                label=f"{workers} workers, {run.servers} servers",
                nodes=workers + run.servers,
                size=workers,
                servers=run.servers,
                measured=run.updates_1_s,
                predicted=_predicted(fit, run, seen=run in kept),
                fitted=run in kept,
            )
        )
    return Curve(source=source, name=f"{gpu} {network}", options=tuple(options))


def _predicted(fit: ServerFit, run: ClusterRun, *, seen: bool) -> float:
    """Updates a second; what has been run is known by its runs, as to the planner."""
    law = fit.log_law(replace(run, updates_1_s=math.nan))
    if not seen:
        return math.exp(law.mean)
    logs = [math.log(run.updates_1_s) - law.mean] * run.repeats
    return math.exp(law.mean + own_log_ratio(logs))


def _look_at_allreduce(data: Path) -> Looked:
    rows = pollux.step_rows(read_table(data, pollux.FILE))
    looked: Looked = []
    for workload in sorted(set(rows.workload.tolist())):
        own = rows.where(rows.workload == workload)
        seen = np.isin(own.shape, FIRST_SHAPES) & np.isin(own.batch, _few_batches(own))
        if not seen.any():
            why = "no first look at it: nothing was measured on one GPU"
            looked.append(LeftOut(source="pollux", name=workload, why=why))
            continue
        predicted_s = AllReduceModel(own.where(seen)).predict(own).step_s
        for batch in np.unique(own.batch):
            here = np.flatnonzero(own.batch == batch)
            name = f"{workload}, {batch:g} a GPU"
            if len(here) < LEAST_OPTIONS:
                looked.append(_too_few("pollux", name, len(here)))
                continue
            options = tuple(
                Option(
                    label=str(own.shape[at]),
                    nodes=int(own.nodes[at]),
                    size=int(own.replicas[at]),
                    servers=0,
                    measured=float(own.replicas[at] * batch / own.step_s[at]),
                    predicted=float(own.replicas[at] * batch / predicted_s[at]),
                    fitted=bool(seen[at]),
                )
                for at in here.tolist()
            )
            looked.append(Curve(source="pollux", name=name, options=options))
    return looked


def _few_batches(rows: StepRows) -> list[float]:
    """Smallest, middle and largest of the usual batches that one GPU was measured at."""
    batches = np.unique(rows.batch[rows.replicas == 1])
    usual = batches[batches <= LARGE_BATCH]
    kept = (usual if len(usual) else batches).tolist()
    return sorted({kept[0], kept[len(kept) // 2], kept[-1]}) if kept else []
