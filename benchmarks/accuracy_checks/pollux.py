"""All-reduce steps: a workload new but for some 20 rows, and node counts never measured."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from accuracy_checks.checking import Cells, Check, Planner, Plot, values, write_fold
from accuracy_checks.replay import Replay, Run, Setting
from sbtrain_perf.fitting.allreduce import StepRows
from sbtrain_perf.score import pollux
from sbtrain_perf.score.metrics import Point, summarise
from sbtrain_perf.score.tables import read_table

STEPS = pollux.FILE
FIRST_LOOK_NODES = 4
PLOTTED = 6  # one point in so many is drawn
LINK_BYTES_S = 6.25e9  # the testbed's 50 Gbit/s
# As published: BERT base, ResNet-18, ResNet-50, YOLOv3. The others' builds are not known.
PARAMETERS = {
    "bert": 110_000_000,
    "cifar10": 11_200_000,
    "imagenet": 25_600_000,
    "yolov3": 61_900_000,
}


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
    new = [row for _, *fold in _new_workloads(data, scratch) for row in _predicted(*fold)]
    beyond = _predicted(*_more_nodes(data, scratch))
    what = "all-reduce, new workload, 20 rows"
    return [
        _line(f"{what}, rest <= 4 nodes", [row for row in new if row.nodes <= 4], 8.0),
        _line(f"{what}, 6 nodes", [row for row in new if row.nodes == 6], 10.0),
        _line("all-reduce, fit <= 4 nodes, score 6", beyond, 10.0),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A scored row, as each predicts it. planner: None where it asks for no such placement.
    ran: the workload was seen at this batch of a GPU."""

    nodes: int
    ran: bool
    scorer: Point
    pollux: Point
    planner: Point | None


def _predicted(fit: Path, held: Path) -> list[_Row]:
    """The planner has as many GPUs on every node. It learns nothing across workloads, so of
    those that are not asked for it is shown nothing."""
    asked = pollux.step_rows(read_table(held, STEPS), fitted=False)
    known = pollux.step_rows(read_table(fit, STEPS))
    known = known.where(np.isin(known.workload, asked.workload))
    replay = Replay([("T4", gpus) for gpus in range(1, 5)], link_bytes_s=LINK_BYTES_S)
    learnt = replay.learnt(
        [Run(setting=where, step_s=step_s) for where, step_s, _ in _even(known)]
    )
    ran = {(str(name), batch) for name, batch in zip(known.workload, known.batch, strict=True)}
    even = _even(asked)
    planned = replay.steps([row[:2] for row in even], learnt)
    planner = {at: point for (*_, at), point in zip(even, planned, strict=True)}
    models = pollux.points(fit, held)
    return [
        _Row(
            nodes=int(asked.nodes[at]),
            ran=(str(asked.workload[at]), asked.batch[at]) in ran,
            scorer=scorer,
            pollux=theirs,
            planner=planner.get(at),
        )
        for at, (scorer, theirs) in enumerate(
            zip(models["ours"], models["pollux"], strict=True)
        )
    ]


def _even(rows: StepRows) -> list[tuple[Setting, float, int]]:
    """Setting, seconds of a step and index of each such row."""
    return [
        (
            setting(
                str(rows.workload[at]),
                nodes=int(rows.nodes[at]),
                gpus=int(rows.most_gpus[at]),
                batch=float(rows.batch[at]),
            ),
            float(rows.step_s[at]),
            at,
        )
        for at in np.flatnonzero(rows.most_gpus == rows.fewest_gpus).tolist()
    ]


def setting(workload: str, *, nodes: int, gpus: int, batch: float) -> Setting:
    """batch: of one GPU. Of a network whose size is published the user says it."""
    return Setting(
        workload=workload,
        gpu="T4",
        nodes=nodes,
        gpus=gpus,
        batch=round(batch * gpus),
        parameters=PARAMETERS.get(workload),
    )


def _line(what: str, rows: Sequence[_Row], bar: float) -> Check:
    scorer = summarise("", "ours", [row.scorer for row in rows])
    theirs = summarise("", "pollux", [row.pollux for row in rows])
    same = summarise("", "ours", [row.scorer for row in rows if row.planner])
    known = [row.planner for row in rows if row.planner and row.ran]
    of_known = summarise("", "planner", known)
    return Check(
        what=what,
        value=scorer.mape,
        planner=Planner.of(
            [row.planner for row in rows if row.planner],
            note=f"as many GPUs on every node (scorer on them {same.mape:.1f}); "
            f"{of_known.mape:.1f} of batches that ran ({of_known.n} rows)",
        ),
        bar=bar,
        n=scorer.n,
        coverage90=scorer.coverage90,
        yardstick=f"Pollux's form {theirs.mape:.1f}",
    )
