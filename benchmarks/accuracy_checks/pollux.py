"""All-reduce steps: a workload new but for some 20 rows, and node counts never measured."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from accuracy_checks.checking import Cells, Check, Plot, pool, values, write_fold
from sbtrain_perf.score import pollux

STEPS = pollux.FILE
FIRST_LOOK_NODES = 4
PLOTTED = 6  # one point in so many is drawn


def first_look(data: Path, workload: str) -> set[tuple[str, ...]]:
    """Keys of the rows that a first look at a workload measures: three batches on 1, 2 and 4
    GPUs of one node and on one GPU of each of up to 4 nodes."""
    with (data / STEPS).open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == workload]
    batches = sorted({float(row["local_bsz"]) for row in rows if row["num_replicas"] == "1"})
    usual = batches[: next((i for i, b in enumerate(batches) if b > 1500), len(batches))]
    few = {usual[0], usual[len(usual) // 2], usual[-1]} if len(usual) > 5 else set(usual)
    return {key(row) for row in rows if float(row["local_bsz"]) in few and _one_gpu_a_node(row)}


def key(row: Cells) -> tuple[str, ...]:
    return tuple(
        row[name] for name in ("model", "placement", "num_nodes", "num_replicas", "local_bsz")
    )


def _one_gpu_a_node(row: Cells) -> bool:
    nodes, replicas = int(row["num_nodes"]), int(row["num_replicas"])
    if nodes == 1:
        return replicas in (1, 2, 4)
    return replicas == nodes <= FIRST_LOOK_NODES


def _new_workloads(data: Path, scratch: Path) -> Iterator[tuple[str, Path, Path]]:
    for workload in values(data, STEPS, "model"):
        seen = first_look(data, workload)

        def side(
            row: Cells, seen: set[tuple[str, ...]] = seen, workload: str = workload
        ) -> str:
            return "fit" if row["model"] != workload or key(row) in seen else "score"

        yield (workload, *write_fold(data, scratch / workload, {STEPS: side}))


def _more_nodes(data: Path, scratch: Path) -> tuple[Path, Path]:
    def side(row: Cells) -> str:
        return "fit" if int(row["num_nodes"]) <= FIRST_LOOK_NODES else "score"

    return write_fold(data, scratch / "more-nodes", {STEPS: side})


def plots(data: Path, scratch: Path) -> list[Plot]:
    series = {
        f"{name} (20 rows)": pollux.points(fit, held)["ours"][::PLOTTED]
        for name, fit, held in _new_workloads(data, scratch)
    }
    return [
        Plot(
            name="pollux",
            title="All-reduce steps of a workload known from some 20 rows",
            unit="s/step",
            series=series,
        )
    ]


def checks(data: Path, scratch: Path) -> list[Check]:
    scores = [
        score
        for _, fit, held in _new_workloads(data, scratch)
        for score in pollux.score(fit, held)
    ]
    lines = [
        _line(f"all-reduce, new workload, 20 rows, {label}", scores, group, bar)
        for group, label, bar in (("<=4", "rest <= 4 nodes", 8.0), ("6", "6 nodes", 10.0))
    ]
    fit, held = _more_nodes(data, scratch)
    beyond = pollux.score(fit, held)
    return [*lines, _line("all-reduce, fit <= 4 nodes, score 6", beyond, "6", 10.0)]


def _line(what: str, scores: list[pollux.GroupScore], group: str, bar: float) -> Check:
    ours = pool(scores, group=group)
    theirs = pool(scores, group=group, model="pollux")
    return Check(
        what=what,
        value=ours.mape,
        bar=bar,
        n=ours.n,
        coverage90=ours.coverage90,
        yardstick=f"Pollux's form {theirs.mape:.1f}",
    )
