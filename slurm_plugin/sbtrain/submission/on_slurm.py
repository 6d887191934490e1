"""What Slurm does to a plan: how long its job waits, and the time that it is given."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sbtrain.options.argv import last_value
from sbtrain.submission.queue import Known, Waits
from sbtrain_perf.request import slurm_partition
from sbtrain_perf.wording import duration

if TYPE_CHECKING:
    from sbtrain.submission.asked import Asked
    from sbtrain_perf.coefficients import Coefficients
    from sbtrain_perf.decision import Decision
    from sbtrain_perf.request import ClusterShape, Plan, Request

_MOST_NAMED = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    coefficients: Coefficients
    run_id: str
    run_dir: str

    def plan(
        self,
        request: Request,
        shape: ClusterShape,
        queue_waits: Mapping[str, float] | None = None,
    ) -> Decision:
        from sbtrain_perf.planner import plan_request

        return plan_request(
            request,
            shape,
            self.coefficients,
            run_id=self.run_id,
            run_dir=self.run_dir,
            queue_waits=queue_waits,
        )


def with_waits(
    planner: Planner,
    request: Request,
    shape: ClusterShape,
    decision: Decision,
    waits: Waits,
) -> tuple[ClusterShape, Decision, list[str]]:
    """The decision when the queue is known: as many nodes as are best, later, or fewer, now.
    Where nobody can say how long a partition waits, what starts now or at a known time goes
    first; where nothing does, the queue is not reckoned with, and a warning says so."""
    said = list[str]()
    seconds = {name: wait_s for name, wait_s in waits.seconds.items() if wait_s is not None}
    unknown = waits.seconds.keys() - seconds
    if unknown:
        now = {name: waits.at_once.get(name, 0) for name in unknown}
        some = _with_most(shape, now)
        first = planner.plan(request, some) if some.partitions else decision
        of_unknown = decision.chosen is not None and decision.chosen.partition in unknown
        if first.chosen is not None and some.partitions:
            shape, decision = some, first
        if of_unknown:
            names = ", ".join(sorted(unknown)[:_MOST_NAMED])
            more = len(unknown) - _MOST_NAMED
            names += f" and {more} more" if more > 0 else ""
            then = "what can start is taken" if decision is first else "planned as if they were"
            said = [f"nobody can say when nodes of {names} come free: {then}"]
    if not any(seconds.values()):
        return shape, decision, said
    later = planner.plan(request, shape, seconds)
    at_once = {name: nodes for name, nodes in waits.at_once.items() if name not in unknown}
    if not at_once or request.objective.kind not in ("balanced", "time"):
        return shape, later, said
    small = _with_most(shape, at_once)
    passed = {name: 0.0 if name in at_once else s for name, s in seconds.items()}
    sooner = planner.plan(request, small, passed)
    if _value(sooner) < _value(later):
        return small, sooner, said
    return shape, later, said


def _with_most(shape: ClusterShape, most: Mapping[str, int]) -> ClusterShape:
    """No more nodes a job than that, by partition; without those that have none."""
    kept = []
    for one in shape.partitions:
        nodes = most.get(one.name, most.get(slurm_partition(one.name), one.max_nodes_per_job))
        nodes = min(nodes, one.max_nodes_per_job)
        if nodes:
            kept.append(dataclasses.replace(one, max_nodes_per_job=nodes))
    return dataclasses.replace(shape, partitions=tuple(kept))


def _value(decision: Decision) -> float:
    return math.inf if decision.value is None else decision.value


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
