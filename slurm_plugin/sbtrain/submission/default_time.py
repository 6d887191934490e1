"""The time limit of a job that asks for none, where the run is predicted to take longer."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sbtrain.submission.queue import Known
from sbtrain_perf.request import slurm_partition
from sbtrain_perf.wording import duration

if TYPE_CHECKING:
    from sbtrain.submission.asked import Asked
    from sbtrain_perf.decision import Decision
    from sbtrain_perf.request import ClusterShape, Plan


def with_default_time(
    asked: Asked,
    decision: Decision,
    shape: ClusterShape,
    *,
    known: Known,
) -> Decision:
    """The decision, with what the default time of its partition does to the run."""
    plan = decision.chosen
    if plan is None or not (asked.opened or asked.launch == "ranks"):
        return decision
    if any(word.startswith("--time=") for word in plan.sbatch_options):
        return decision
    runs_s = plan.prediction.total_s - plan.prediction.queue_s
    default_s = _default_s(plan, shape, known)
    if default_s is None or runs_s <= default_s:
        return decision
    then = (
        "it is cut there, and goes on after a requeue" if plan.resumable else "it is cut there"
    )
    said = (
        f"{slurm_partition(plan.partition)} gives jobs that ask for no time "
        f"{duration(default_s)}, and the run is predicted to take {duration(runs_s)}: {then}; "
        "ask for more (--time)"
    )
    return dataclasses.replace(decision, risks=(*decision.risks, said))


def _default_s(plan: Plan, shape: ClusterShape, known: Known) -> float | None:
    """By Slurm, else by the site file; a partition without one has its longest time."""
    name = slurm_partition(plan.partition)
    for one in known.partitions:
        if one.name == name:
            return one.default_time_s or one.max_time_s
    for stated in shape.partitions:
        if stated.name == plan.partition:
            return stated.default_time_s
    return None
