"""Why a plan was chosen, why a candidate never ends, and what the user should know."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sbtrain_perf.coefficients import Coefficients, learnt_lifetime
from sbtrain_perf.decision import (
    WIDE,
    Row,
    dominant_in_words,
    drift_in_words,
    faster_in_words,
    in_words,
    interval_in_words,
    measure,
    odds_in_words,
    setup,
    share_in_words,
)
from sbtrain_perf.limit_risk import SAFE
from sbtrain_perf.limits import PUSHES
from sbtrain_perf.near_tie import FREE, NEAR
from sbtrain_perf.request import ClusterShape, Partition, Plan, Prediction, Spread
from sbtrain_perf.wording import count, duration, ratio

if TYPE_CHECKING:
    from sbtrain_perf.predict import Candidates, Forecast
    from sbtrain_perf.weighing import Weighing

MANY_RESTARTS = 1e6
_WORTH_SAYING = 1.05  # times faster than the other layout

_BEST = {
    "balanced": "best trade of predicted time and {}",
    "time": "shortest predicted time",
    "cost": "least predicted cost",
    "node-hours": "fewest predicted node-hours",
    "deadline": "cheapest that keeps the deadline with {} probability",
}


def choice_reason(rows: Sequence[Row], weighing: Weighing, currency: str) -> str:
    """One sentence: what was chosen, which term dominates, what the runner-up costs.

    The runner-up is the best row of another partition or layout; where there is none, of
    another node count. rows: best first.
    """
    best = rows[0]
    if best.prediction is None:
        return ""
    objective, priced = weighing.objective, weighing.priced
    value = in_words(best.prediction, objective, priced=priced, currency=currency)
    odds = best.deadline_odds
    paid = "cost" if priced else "node-hours"
    by_odds = objective.kind == "deadline"
    said = _BEST[objective.kind].format(odds_in_words(odds or 0.0) if by_odds else paid)
    if odds is not None and odds < objective.sure:
        said = f"likeliest to keep the deadline, with {odds_in_words(odds)}"
    quicker = min(
        (r for r in rows[1:] if _is_quicker(r, best, weighing)),
        key=lambda r: r.prediction.total_s if r.prediction else math.inf,
        default=None,
    )
    if quicker is not None and objective.kind == "time":
        said = f"within {100 * NEAR:g} % of the shortest predicted time, and the better trade"
    wide = interval_in_words(best.prediction, from_ratio=WIDE)
    text = f"{said}, {value}{wide}, on {setup(best)}; {dominant_in_words(best.prediction)}"
    text += counterfactual(best, rows, weighing)
    if quicker is not None and quicker.prediction is not None:
        gain = faster_in_words(quicker.prediction, best.prediction, priced=priced)
        text += f"; {setup(quicker)} would be {gain}"
    others = [
        r
        for r in rows[1:]
        if r.prediction is not None
        and _will_do(r, weighing)
        and not _is_quicker(r, best, weighing)
    ]
    pair = (best.partition, best.layout)
    second = next((r for r in others if (r.partition, r.layout) != pair), None)
    second = second or next(iter(others), None)
    if second is None or second.prediction is None:
        unasked = " unasked" if _aside(weighing) else ""
        return text if quicker is not None else f"{text}; nothing else will do{unasked}"
    least = measure(best.prediction, objective, priced=priced)
    more = measure(second.prediction, objective, priced=priced)
    other = in_words(second.prediction, objective, priced=priced, currency=currency)
    times = f" ({ratio(more / least)} x)" if least > 0 else ""
    which = "next best"
    if second is not others[0]:
        same = second.partition == best.partition
        which = "best of the other layout" if same else "best elsewhere"
    return f"{text}; {which}: {setup(second)}, {other}{times}"


def _is_quicker(row: Row, best: Row, weighing: Weighing) -> bool:
    """Whether the chosen row was preferred to one that is faster, for its price."""
    if weighing.objective.kind not in ("time", "balanced"):
        return False
    if row.prediction is None or best.prediction is None:
        return False
    return row.prediction.total_s < best.prediction.total_s * (1 - 1e-9)


def _will_do(row: Row, weighing: Weighing) -> bool:
    return row.deadline_odds is None or row.deadline_odds >= weighing.objective.sure


def counterfactual(best: Row, rows: Sequence[Row], weighing: Weighing) -> str:
    """What the other layout would do on the same partition, where its reason is known:
    servers that are saturated, or gradients that take most of a step. rows: best first."""
    other = next(
        (r for r in rows if r.partition == best.partition and r.layout != best.layout), None
    )
    if other is None or other.prediction is None or best.prediction is None:
        return ""
    faster = other.prediction.total_s / best.prediction.total_s
    served, ring = (best, other) if best.servers else (other, best)
    if faster < _WORTH_SAYING:
        return ""
    if best is ring:
        limit = weighing.saturated_at(served.partition, served.servers)
        if served.workers < limit:
            return ""
        servers = count(served.servers, "parameter server")
        verb = "is" if served.servers == 1 else "are"
        workers = count(max(int(limit), 1), "worker")
        return (
            f"; {servers} {verb} saturated at {workers}: all-reduce is {ratio(faster)} x faster"
        )
    share = weighing.communication_share(ring.partition, ring.nodes)
    if share < 0.5:
        return ""
    return (
        f"; gradients take {share:.0%} of an all-reduce step on {count(ring.nodes, 'node')}: "
        f"parameter servers are {ratio(faster)} x faster"
    )


def why_never(weighing: Weighing, candidates: Candidates, forecast: Forecast, at: int) -> str:
    """Why a candidate's predicted end is never."""
    partition = int(candidates.partition[at])
    limit_s = float(weighing.terms.limit_s[partition])
    setup_s = float(forecast.stage_s[at] + forecast.start_s[at])
    if not weighing.request.resumable:
        run_s = setup_s + float(forecast.work_s[at])
        if run_s > limit_s:
            return (
                f"takes {duration(run_s)}, the time limit is {duration(limit_s)} and the run "
                f"does not {'go on after it' if weighing.request.forbidden_by else 'resume'}"
            )
    elif setup_s + float(forecast.checkpoint_s[at]) >= limit_s:
        return f"the time limit of {duration(limit_s)} ends before the first step"
    restarts = float(forecast.restarts[at])
    if weighing.predictor.most_restarts < restarts < MANY_RESTARTS:
        allowed = weighing.predictor.shape.max_requeues
        return f"some {restarts:,.0f} restarts are to be expected, the site allows {allowed}"
    return "interrupted faster than it makes progress"


def refusal(rows: Sequence[Row], weighing: Weighing, shape: ClusterShape) -> str:
    """Why nothing was chosen, with the way out where one is known."""
    ends = [r for r in rows if r.prediction is not None]
    if ends and weighing.objective.kind == "deadline":
        quickest = min(ends, key=lambda r: r.prediction.total_s if r.prediction else 0.0)
        if quickest.prediction is not None:
            deadline_s = weighing.objective.deadline_s or 0.0
            return (
                f"no plan keeps the deadline of {duration(deadline_s)}: the fastest takes "
                f"{duration(quickest.prediction.total_s)}, on {setup(quickest)}"
            )
    if rows:
        return f"no plan comes to an end: {setup(rows[0])} {rows[0].rejected}{_aside(weighing)}"
    reasons: dict[str, list[str]] = {}
    for row in weighing.refused:
        reasons.setdefault(row.rejected or "", []).append(row.partition)
    said = "; ".join(
        f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''}: "
        f"{reason}"
        for reason, names in list(reasons.items())[:3]
    )
    return f"no partition of {shape.name} fits: {said}"


def _aside(weighing: Weighing) -> str:
    """What else would fit, were it asked for."""
    names = [row.partition for row in weighing.refused if row.rejected == PUSHES]
    return f"; not weighed: {', '.join(names[:3])}, which {PUSHES}" if names else ""


def notes(weighing: Weighing, shape: ClusterShape) -> tuple[str, ...]:
    """What the choice rests on: assumptions, and what the request means."""
    job, request = weighing.job, weighing.request
    said = []
    if not job.known:
        said.append("never run before: predicted from shipped coefficients alone")
    said += [
        drift_in_words(one)
        for one in weighing.finder.coefficients.drift
        if (one.cluster, one.workload) == (shape.name, request.workload)
    ]
    if job.assumptions:
        said.append("assumed: " + ", ".join(job.assumptions))
    if request.steps is not None and request.nodes.high != 1:
        said.append(
            f"{count(request.steps, 'step')} were asked for: with all-reduce more nodes train "
            "on more samples a step, not in fewer steps"
        )
    if request.objective.kind in ("cost", "deadline") and not weighing.priced:
        said.append(f"the site {shape.name} states no price: node-hours stand in for cost")
    return tuple(said)


def chosen_notes(
    weighing: Weighing, plan: Plan, shape: ClusterShape, *, odds: float | None
) -> tuple[str, ...]:
    """What is to be known of the chosen row. odds: to keep the deadline."""
    said, request = [], weighing.request
    if odds is not None and odds < request.objective.sure:
        said.append(
            f"no plan keeps the deadline of {duration(weighing.deadline_s)} with "
            f"{share_in_words(request.objective.sure)}: the likeliest does with "
            f"{odds_in_words(odds)}"
        )
    partition = next(p for p in weighing.fit if p.name == plan.partition)
    if weighing.priced and partition.price_per_node_hour == 0.0:
        counts = "as free"
        if request.objective.kind == "balanced":
            counts = f"as at {FREE:.0%} of the least price"
        said.append(f"the site file gives {plan.partition} no price: it counts {counts}")
    if partition.mix:
        types = ", ".join(f"{group.nodes} of {group.gpu.name}" for group in partition.mix)
        pace = "the mean of their speeds" if plan.servers else "the slowest's pace"
        said.append(f"{plan.partition} is whatever nodes Slurm picks ({types}), at {pace}")
    coefficients = weighing.finder.coefficients
    if learnt_lifetime(coefficients, shape.name, plan.partition) is not None:
        said.append(preemption_in_words(plan, coefficients))
    if unstated := unstated_in_words(partition, shape, plan):
        said.append(
            f"neither Slurm nor a site file states {unstated}: the interval allows for it"
        )
    if not weighing.job.known and (teaches := teaching_run(plan.prediction)):
        said.append(teaches)
    return tuple(said)


def unstated_in_words(partition: Partition, shape: ClusterShape, plan: Plan) -> str:
    """What of the hardware the prediction had to assume, of what has a part in it."""
    said = []
    if partition.gpu is not None and not partition.gpu.known:
        said.append(f"how fast a {partition.gpu.name} is (taken for a V100)")
    if plan.nodes > 1 and "network_bytes_s" in partition.assumed:
        said.append(
            f"the nodes' links ({partition.network_bytes_s * 8 / 1e9:g} Gbit/s assumed)"
        )
    reads = bool(plan.data.total_bytes) or bool(plan.prediction.checkpoints)
    if reads and shape.assumed:
        rate = f"{shape.shared_client_bytes_s / 1e9:g} GB/s"
        said.append(f"the shared filesystem ({rate} a node assumed)")
    return ", ".join(said)


def teaching_run(prediction: Prediction) -> str:
    """Which part the interval owes its width to, and the run that narrows it most."""
    spread = prediction.spread
    widths = {
        "training steps": prediction.step_s * prediction.steps * spread.step,
        "start-up": prediction.start_s * spread.start,
        "staging": prediction.stage_s * spread.stage,
        "checkpoints": prediction.checkpoint_s * prediction.checkpoints * spread.checkpoint,
    }
    part = max(widths, key=lambda name: widths[name])
    if not widths[part] or spread == Spread():
        return ""
    return (
        f"most of the interval is for {part}: a first run on the same nodes, however short "
        "(--train-steps 100), tells"
    )


def risks(weighing: Weighing, plan: Plan, *, kept: float) -> tuple[str, ...]:
    """How the chosen row may lose work. kept: probability to end before the time limit."""
    at = next(i for i, p in enumerate(weighing.fit) if p.name == plan.partition)
    partition, said, forbidden = weighing.fit[at], [], weighing.request.forbidden_by
    why, way = "nothing says that the script resumes", "let it resume"
    if forbidden:
        why, way = f"{forbidden} forbids to go on after it", f"leave out {forbidden}"
    if partition.preempts_others and not weighing.request.partition:
        said.append(f"{plan.partition} pushes running jobs of others aside")
    if kept < SAFE and weighing.request.says_work:
        limit = duration(float(weighing.terms.limit_s[at]))
        said.append(
            f"the run ends before the time limit of {limit} with {odds_in_words(kept)}, and "
            f"{why}: ask for more time (--time), or {way}"
        )
    if partition.preemptible and not plan.resumable:
        then = "a preempted run ends there, it is not requeued"
        if plan.launch == "script" and not forbidden:
            then = "a preempted run begins anew, if the cluster requeues it"
        said.append(f"{plan.partition} may preempt, and {why}: {then}")
    elif partition.preemptible and plan.prediction.checkpoint_s > plan.warned_s:
        said.append(
            f"a checkpoint ({duration(plan.prediction.checkpoint_s)}) does not fit the "
            f"{duration(plan.warned_s)} between preemption signal and kill: a preemption "
            f"loses up to {duration(plan.checkpoint_interval_s)} of work"
        )
    return tuple(said)


def preemption_in_words(plan: Plan, coefficients: Coefficients) -> str:
    """`preempted after 2 h on average here (14 runs, 9 ended), interval 12 min`."""
    learnt = learnt_lifetime(coefficients, plan.cluster, plan.partition)
    stated_s = plan.basis.preemption_s
    if learnt is None and not stated_s:
        return ""
    every = f"interval {duration(plan.checkpoint_interval_s)}"
    if not plan.resumable:
        every = "a preempted run ends there"
    if learnt is None:
        return (
            f"preempted after {duration(stated_s)} on average, as stated or assumed (no run "
            f"of {plan.partition} was learnt from), {every}"
        )
    ended = f"{learnt.ended} ended"
    if learnt.attempts > len(learnt.runs):
        ended = f"{learnt.ended} of {learnt.attempts} attempts ended"
    seen = f"{count(len(learnt.runs), 'run')}, {ended} so"
    return f"preempted after {duration(learnt.mean_s)} on average here ({seen}), {every}"
