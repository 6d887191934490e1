"""Figures of the demonstration's runs: what was predicted, what was measured, and whether
they are as they should be."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbtrain_jobs.run_folder import RunFolder
from sbtrain_perf.codec import read_plan
from sbtrain_perf.timing_log import AttemptTimings, read_timing_log


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One staging of the data set to all nodes of an attempt."""

    attempt: int
    dataset_bytes: int
    source_bytes_read: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One run. Seconds without the queue; steps redone are those past the saved one."""

    job: str
    layout: str
    nodes: int
    generation: str
    predicted_s: float
    measured_s: float
    predicted_step_s: float
    measured_step_s: float
    preemptions: int
    saved_step: int | None
    resumed_step: int | None
    steps_redone: int
    accuracy: float
    stages: tuple[Stage, ...]

    @property
    def error(self) -> float:
        """Of the run time, relative to the measured."""
        return abs(self.predicted_s - self.measured_s) / self.measured_s

    @property
    def step_error(self) -> float:
        return abs(self.predicted_step_s - self.measured_step_s) / self.measured_step_s


def figures_of(status: dict[str, Any]) -> Figures:
    """From what `sbtrainctl status --json` says of a run, and its run folder."""
    folder = RunFolder(path=Path(status["run_dir"]))
    plan = read_plan(folder.plan)
    logs = [
        read_timing_log(folder.attempt(attempt["attempt"]).timings)
        for attempt in status["attempts"]
    ]
    saved = next((a["saved_step"] for a in status["attempts"] if a["saved_step"]), None)
    restores = [phase for log in logs for phase in log.named("restore")]
    resumed = int(restores[-1].numbers["step"]) if restores else None
    last_before = max((_last_step(log) for log in logs[:-1]), default=0)
    return Figures(
        job=status["job_id"],
        layout=plan.layout,
        nodes=plan.nodes,
        generation=plan.coefficients,
        predicted_s=plan.prediction.total_s - plan.prediction.queue_s,
        measured_s=sum(_seconds(attempt) for attempt in status["attempts"]),
        predicted_step_s=plan.prediction.step_s,
        measured_step_s=statistics.median(step for log in logs for step in _steps(log)),
        preemptions=sum(
            attempt["notices"].count("preempted") for attempt in status["attempts"]
        ),
        saved_step=saved,
        resumed_step=resumed,
        steps_redone=max(0, last_before - (resumed or last_before)),
        accuracy=float(status["metrics"]["accuracy"]),
        stages=tuple(_stage(folder, int(attempt["attempt"])) for attempt in status["attempts"]),
    )


def summary_of(figures: list[Figures], *, seconds: float) -> dict[str, Any]:
    """What summary.json holds."""
    ps_before, preempted, ps_after, allreduce_after = figures
    read = [stage for one in figures for stage in one.stages if stage.source_bytes_read]
    kept = [stage for one in figures for stage in one.stages if not stage.source_bytes_read]
    before = ps_before.error
    after = ps_after.error
    ratios = [stage.source_bytes_read / stage.dataset_bytes for stage in read]
    return {
        "seconds": round(seconds, 1),
        "layouts": {one.layout: {"nodes": one.nodes} for one in (ps_before, preempted)},
        "preemptions": preempted.preemptions,
        "saved_step": preempted.saved_step,
        "resumed_step": preempted.resumed_step,
        "steps_redone": preempted.steps_redone,
        "accuracy": min(one.accuracy for one in figures),
        "stages": [
            {
                "dataset_bytes": stage.dataset_bytes,
                "source_bytes_read": stage.source_bytes_read,
                "ratio": ratio,
            }
            for stage, ratio in zip(read, ratios, strict=True)
        ],
        "stages_from_node_cache": len(kept),
        "prediction_error_before": before,
        "prediction_error_after": after,
        "step_error_before": {one.layout: one.step_error for one in (ps_before, preempted)},
        "step_error_after": {one.layout: one.step_error for one in (ps_after, allreduce_after)},
        "runs": [
            {
                "job": one.job,
                "layout": one.layout,
                "nodes": one.nodes,
                "coefficients": one.generation,
                "predicted_s": one.predicted_s,
                "measured_s": one.measured_s,
                "predicted_step_s": one.predicted_step_s,
                "measured_step_s": one.measured_step_s,
                "accuracy": one.accuracy,
            }
            for one in figures
        ],
        "checks": {
            "both layouts ran on 2 nodes or more": min(one.nodes for one in figures) >= 2
            and {one.layout for one in figures} == {"ps", "allreduce"},
            "a run was preempted": preempted.preemptions >= 1,
            "it resumed from the step that it saved": preempted.resumed_step
            == preempted.saved_step
            and preempted.saved_step is not None,
            "accuracy is 0.95 or more": min(one.accuracy for one in figures) >= 0.95,
            "each staging read every byte once": bool(ratios) and set(ratios) == {1.0},
            "the model predicts better after learning": after < before,
        },
    }


def table_of(figures: list[Figures], summary: dict[str, Any]) -> str:
    """One line a run, for people."""
    head = (
        "job",
        "layout",
        "nodes",
        "predicted",
        "measured",
        "error",
        "s/step",
        "measured",
        "redone",
        "accuracy",
        "bytes read",
    )
    rows = [head]
    for one in figures:
        rows.append(
            (
                one.job,
                one.layout,
                str(one.nodes),
                f"{one.predicted_s:.0f} s",
                f"{one.measured_s:.0f} s",
                f"{100 * one.error:.0f} %",
                f"{one.predicted_step_s:.3f}",
                f"{one.measured_step_s:.3f}",
                f"{one.steps_redone} steps",
                f"{one.accuracy:.3f}",
                " + ".join(
                    f"{stage.source_bytes_read / stage.dataset_bytes:.0f}x"
                    for stage in one.stages
                ),
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    lines.append(
        f"preempted after step {summary['saved_step']}, resumed from step "
        f"{summary['resumed_step']}; the last two runs were predicted from what the first "
        "two taught"
    )
    return "\n".join(lines)


def _seconds(attempt: dict[str, Any]) -> float:
    from datetime import datetime

    begin, end = (datetime.fromisoformat(attempt[key]) for key in ("started_at", "ended_at"))
    return (end - begin).total_seconds()


def _steps(log: AttemptTimings) -> list[float]:
    return [float(value) for rank in log.ranks for value in rank.seconds]


def _last_step(log: AttemptTimings) -> int:
    return max((int(rank.step.max()) for rank in log.ranks if len(rank.step)), default=0)


def _stage(folder: RunFolder, attempt: int) -> Stage:
    report = json.loads(folder.attempt(attempt).staging_report.read_text())
    return Stage(
        attempt=attempt,
        dataset_bytes=report["dataset_bytes"],
        source_bytes_read=report["source_bytes_read"],
    )
