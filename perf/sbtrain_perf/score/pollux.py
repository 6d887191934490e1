"""All-reduce step times of the Pollux artifact: groups by node count, and by workload."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.fitting.allreduce import AllReduceModel, StepRows
from sbtrain_perf.fitting.allreduce_intervals import IntervalFactors, calibrate
from sbtrain_perf.fitting.conformal import NORMAL_90
from sbtrain_perf.fitting.pollux import PolluxModel
from sbtrain_perf.score.metrics import Point, summarise
from sbtrain_perf.score.tables import (
    MOST,
    MOST_SERVERS,
    MOST_WORKERS,
    ScoreRow,
    Table,
    nothing_to_fit,
    read_table,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sbtrain_perf.score.scoring import GroupScore

    Floats = NDArray[np.float64]

NAME = "pollux"
FILE = "pollux/step_times.csv"
PLACEMENT = re.compile("[1-9]{1,1000}")
NODE_GROUPS = ("<=4", "6", ">=8")
UNLIKE_SD = 1.0  # of the log step between two workloads, where only one is known


def score(fit_dir: Path, score_dir: Path) -> list[GroupScore]:
    """Ours beside Pollux's own model, by node count and by workload."""
    by_model, asked = _predict(fit_dir, score_dir)
    if asked is None:
        return []
    groups = [_node_group(nodes) for nodes in asked.nodes]
    workloads = asked.workload.tolist()
    return [
        summarise(group, model, [all_points[i] for i in members])
        for labels, order in ((groups, NODE_GROUPS), (workloads, sorted(set(workloads))))
        for group in order
        for model, all_points in by_model.items()
        if (members := [i for i, label in enumerate(labels) if label == group])
    ]


def points(fit_dir: Path, score_dir: Path) -> dict[str, list[Point]]:
    """Points in seconds a step, by model, in the file's order."""
    return _predict(fit_dir, score_dir)[0]


def _predict(fit_dir: Path, score_dir: Path) -> tuple[dict[str, list[Point]], StepRows | None]:
    known = step_rows(read_table(fit_dir, FILE))
    asked = step_rows(read_table(score_dir, FILE), fitted=False)
    if not len(asked):
        return {"ours": [], "pollux": []}, None
    if not len(known):
        raise nothing_to_fit(fit_dir, FILE)
    model, factors = AllReduceModel(known), calibrate(known)
    step_s, reach = np.empty(len(asked)), np.empty(len(asked))
    seen = np.isin(asked.workload, model.workloads)
    for here, predict in ((seen, _known), (~seen, _unknown)):
        if here.any():
            step_s[here], reach[here] = predict(model, factors, asked.where(here))
    ours = [
        Point(measured=t, predicted=p, low=p / r, high=p * r)
        for t, p, r in zip(
            asked.step_s.tolist(), step_s.tolist(), np.exp(reach).tolist(), strict=True
        )
    ]
    return {"ours": ours, "pollux": _pollux_points(known, asked)}, asked


def _known(
    model: AllReduceModel, factors: IntervalFactors, rows: StepRows
) -> tuple[Floats, Floats]:
    """Seconds a step and half the 90 % interval's width of its logarithm."""
    predicted = model.predict(rows)
    return predicted.step_s, factors.of(model, rows) * predicted.log_sd


def _unknown(
    model: AllReduceModel, factors: IntervalFactors, rows: StepRows
) -> tuple[Floats, Floats]:
    """The same for workloads without any fitted row: the middle of the others, and as far
    off as they differ."""
    as_others = [
        _known(model, factors, replace(rows, workload=np.full(len(rows), name)))
        for name in model.workloads
    ]
    logs = np.log([step_s for step_s, _ in as_others])
    spread = logs.std(axis=0, ddof=1) if len(logs) > 1 else np.full(len(rows), UNLIKE_SD)
    reach = np.hypot(NORMAL_90 * spread, np.mean([reach for _, reach in as_others], axis=0))
    return np.exp(logs.mean(axis=0)), reach


def step_rows(table: Table, *, fitted: bool = True) -> StepRows:
    """The table as arrays. A placement without digits is spread as evenly as it goes.

    fitted: whether the synchronisation times are wanted, which no prediction needs.
    """
    rows = list(table)
    placements = [_gpus_by_node(row) for row in rows]

    def column(values: list[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array(values, dtype=np.float64)

    return StepRows(
        workload=np.array([row.name("model") for row in rows], dtype=np.str_),
        shape=np.array([_shape(gpus) for gpus in placements], dtype=np.str_),
        nodes=column([float(len(gpus)) for gpus in placements]),
        replicas=column([float(sum(gpus)) for gpus in placements]),
        most_gpus=column([float(max(gpus)) for gpus in placements]),
        fewest_gpus=column([float(min(gpus)) for gpus in placements]),
        batch=column([row.positive("local_bsz") for row in rows]),
        step_s=column([row.positive("step_time_s") for row in rows]),
        sync_s=column([_sync_s(row, fitted=fitted) for row in rows]),
    )


def _sync_s(row: ScoreRow, *, fitted: bool) -> float:
    """The part of the step in synchronisation, 0 where the row does not say."""
    sync_s = row.optional("sync_time_s") or 0.0
    if not 0.0 <= sync_s <= MOST:
        raise row.wrong("sync_time_s", f"is not from 0 to {MOST:g}")
    if fitted and sync_s >= row.positive("step_time_s"):
        raise row.wrong("sync_time_s", "is not less than step_time_s, of which it is a part")
    return sync_s if fitted else 0.0


def _shape(gpus: Sequence[int]) -> str:
    """Digits as in the file; with dashes where a node has ten GPUs or more."""
    return ("" if max(gpus) < 10 else "-").join(map(str, sorted(gpus)))


def _gpus_by_node(row: ScoreRow) -> list[int]:
    """From the placement's digits, which its counts must not contradict, or the counts."""
    digits = row.optional_text("placement")
    if not digits:
        nodes = row.whole("num_nodes", most=MOST_SERVERS)
        replicas = row.whole("num_replicas", most=MOST_WORKERS)
        if nodes > replicas:
            raise row.wrong("num_nodes", f"is more than num_replicas = {replicas}")
        return [replicas // nodes + (i < replicas % nodes) for i in range(nodes)]
    if not PLACEMENT.fullmatch(digits):
        raise row.wrong(
            "placement",
            "is not the digits 1 to 9, one a node",
            hint="a node's digit is the GPUs used on it: 44 is two nodes with four each",
        )
    gpus = [int(digit) for digit in digits]
    for column, found in (("num_nodes", len(gpus)), ("num_replicas", sum(gpus))):
        given = row.optional_whole(column, most=MOST_WORKERS)
        if given not in (None, found):
            raise row.wrong(column, f"is not the {found} of placement = {digits!r}")
    return gpus


def _pollux_points(known: StepRows, asked: StepRows) -> list[Point]:
    predicted = np.empty(len(asked))
    models = {
        name: PolluxModel(known.where(known.workload == name))
        for name in np.unique(known.workload).tolist()
    }
    for name in np.unique(asked.workload).tolist():
        here = asked.workload == name
        own = [models[name]] if name in models else list(models.values())
        logs = [np.log(model.predict(asked.where(here))) for model in own]
        predicted[here] = np.exp(np.mean(logs, axis=0))
    return [
        Point(measured=t, predicted=p)
        for t, p in zip(asked.step_s.tolist(), predicted.tolist(), strict=True)
    ]


def _node_group(nodes: float) -> str:
    if nodes <= 4:
        return "<=4"
    return "6" if nodes < 8 else ">=8"
