"""All-reduce step times of the Pollux artifact: groups by node count, and by workload."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.fitting.allreduce import AllReduceModel, StepRows
from sbtrain_perf.fitting.allreduce_intervals import calibrate
from sbtrain_perf.fitting.pollux import PolluxModel
from sbtrain_perf.score.metrics import Point, summarise
from sbtrain_perf.score.tables import Row, Table, read_table

if TYPE_CHECKING:
    from pathlib import Path

    from sbtrain_perf.score.scoring import GroupScore

NAME = "pollux"
FILE = "pollux/step_times.csv"
NODE_GROUPS = ("<=4", "6", ">=8")


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
    """Points in seconds a step, by model. Rows of a workload without any fitted row are left
    out."""
    return _predict(fit_dir, score_dir)[0]


def _predict(fit_dir: Path, score_dir: Path) -> tuple[dict[str, list[Point]], StepRows | None]:
    known, asked = step_rows(read_table(fit_dir, FILE)), step_rows(read_table(score_dir, FILE))
    asked = asked.where(np.isin(asked.workload, np.unique(known.workload)))
    if not len(asked) or not len(known):
        return {"ours": [], "pollux": []}, None
    model = AllReduceModel(known)
    predicted = model.predict(asked)
    reach = np.exp(calibrate(known).of(model, asked) * predicted.log_sd)
    ours = [
        Point(measured=t, predicted=p, low=p / r, high=p * r)
        for t, p, r in zip(
            asked.step_s.tolist(), predicted.step_s.tolist(), reach.tolist(), strict=True
        )
    ]
    return {"ours": ours, "pollux": _pollux_points(known, asked)}, asked


def step_rows(table: Table) -> StepRows:
    """The table as arrays. A placement without digits is spread as evenly as it goes."""
    rows = list(table)
    placements = [_gpus_by_node(row) for row in rows]

    def column(values: list[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.array(values, dtype=np.float64)

    return StepRows(
        workload=np.array([row.text("model") for row in rows], dtype=np.str_),
        shape=np.array(["".join(map(str, sorted(gpus))) for gpus in placements], dtype=np.str_),
        nodes=column([float(len(gpus)) for gpus in placements]),
        replicas=column([float(sum(gpus)) for gpus in placements]),
        most_gpus=column([float(max(gpus)) for gpus in placements]),
        fewest_gpus=column([float(min(gpus)) for gpus in placements]),
        batch=column([row.number("local_bsz") for row in rows]),
        step_s=column([row.number("step_time_s") for row in rows]),
        sync_s=column([row.optional("sync_time_s") or 0.0 for row in rows]),
    )


def _gpus_by_node(row: Row) -> list[int]:
    digits = row.text("placement")
    if digits:
        return [int(digit) for digit in digits]
    nodes, replicas = row.whole("num_nodes"), row.whole("num_replicas")
    return [replicas // nodes + (i < replicas % nodes) for i in range(nodes)]


def _pollux_points(known: StepRows, asked: StepRows) -> list[Point]:
    predicted = np.empty(len(asked))
    for name in np.unique(asked.workload):
        here = asked.workload == name
        model = PolluxModel(known.where(known.workload == name))
        predicted[here] = model.predict(asked.where(here))
    return [
        Point(measured=t, predicted=p)
        for t, p in zip(asked.step_s.tolist(), predicted.tolist(), strict=True)
    ]


def _node_group(nodes: float) -> str:
    if nodes <= 4:
        return "<=4"
    return "6" if nodes < 8 else ">=8"
