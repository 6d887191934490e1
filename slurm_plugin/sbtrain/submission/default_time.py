"""The time limit of a job that asks for none, where the run is predicted to take longer."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from sbtrain.options.argv import last_value
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
    longest_s, default_s = _longest_s(asked, plan, known), _default_s(plan, shape, known)
    given_s = min(longest_s, default_s)
    if runs_s <= given_s:
        return decision
    then = (
        "it is cut there, and goes on after a requeue" if plan.resumable else "it is cut there"
    )
    where = slurm_partition(plan.partition)
    short = f"{where} gives jobs that ask for no time {duration(given_s)}"
    more = "; ask for more (--time)"
    if longest_s <= default_s:
        short = f"your jobs may take {duration(given_s)} in {where} (account or QOS)"
        more = ""
    runs = f"the run is predicted to take {duration(runs_s)}"
    said = f"{short}, and {runs}: {then}{more}"
    return dataclasses.replace(decision, risks=(*decision.risks, said))


def _longest_s(asked: Asked, plan: Plan, known: Known) -> float:
    """What the accounting lets the job have; where it asks for no time, Slurm gives it that."""
    account, qos = (last_value(asked.settings, name) or "" for name in ("account", "qos"))
    name = slurm_partition(plan.partition)
    for one in known.partitions:
        if one.name == name:
            wall_s = known.limits.of(name, one.qos, account=account, qos=qos).wall_s
            return math.inf if wall_s is None else wall_s
    return math.inf


def _default_s(plan: Plan, shape: ClusterShape, known: Known) -> float:
    """By Slurm, else by the site file; a partition without one has its longest time."""
    name = slurm_partition(plan.partition)
    for one in known.partitions:
        if one.name == name:
            return one.default_time_s or one.max_time_s or math.inf
    for stated in shape.partitions:
        if stated.name == plan.partition:
            return stated.default_time_s or math.inf
    return math.inf
