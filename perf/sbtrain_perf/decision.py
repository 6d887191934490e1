"""What the planner decided: the plan, the rows it weighed, and what it says of them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sbtrain_perf.coefficients import Drift
from sbtrain_perf.request import Layout, Objective, Plan, Prediction
from sbtrain_perf.wording import amount, count, duration, ratio

WIDE = 3.0  # times the low end of an interval: from there on one figure alone would mislead


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One candidate. nodes is 0 where a partition was refused before nodes were counted.

    prediction is None where the candidate was refused outright or would never end.
    rejected says why; None for the chosen row alone. pareto: no listed row is both faster
    and cheaper. deadline_odds: probability to keep the deadline, where one is asked for.
    """

    partition: str
    nodes: int
    layout: Layout
    servers: int
    workers: int
    prediction: Prediction | None
    rejected: str | None
    chosen: bool = False
    pareto: bool = False
    deadline_odds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Rows that were weighed but are not listed one by one."""

    rows: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """chosen is None where no row will do; refusal then says so in one sentence.

    considered: all candidates, listed in rows or counted in rest. notes: what the user
    should know beside the choice. risks: how work may be lost, the run's own or others'.
    value: of the chosen row, what the objective minimises.
    """

    chosen: Plan | None
    rows: tuple[Row, ...]
    objective: Objective
    considered: int
    rest: tuple[Rest, ...] = ()
    notes: tuple[str, ...] = ()
    risks: tuple[str, ...] = ()
    refusal: str = ""
    value: float | None = None


def setup(row: Row) -> str:
    """`4 nodes of spot with 1 parameter server`."""
    way = "all-reduce" if row.layout == "allreduce" else count(row.servers, "parameter server")
    return f"{count(row.nodes, 'node')} of {row.partition} with {way}"


def measure(prediction: Prediction, objective: Objective, *, priced: bool) -> float:
    """What the objective minimises; for a deadline, of rows that keep it. Of time and price
    together, the time."""
    if objective.kind in ("time", "balanced"):
        return prediction.total_s
    if objective.kind == "node-hours" or not priced:
        return prediction.node_hours
    return prediction.cost


def in_words(
    prediction: Prediction, objective: Objective, *, priced: bool, currency: str
) -> str:
    value = measure(prediction, objective, priced=priced)
    if objective.kind == "balanced":
        hours = f"{amount(prediction.node_hours)} node-hours"
        paid = f"{amount(prediction.cost)} {currency}" if priced else hours
        return f"{duration(value)} for {paid}"
    if objective.kind == "time":
        return duration(value)
    if objective.kind == "node-hours" or not priced:
        return f"{amount(value)} node-hours"
    return f"{amount(value)} {currency}"


def drift_in_words(drift: Drift) -> str:
    noun = {
        "stage": "staging",
        "start": "start-up",
        "step": "steps",
        "checkpoint": "checkpoints",
    }
    return (
        f"{drift.outside} of the last {count(drift.runs, 'run')} of {drift.workload} took "
        f"{noun.get(drift.term, drift.term)} outside the 90 % they were planned with, "
        f"typically {ratio(drift.ratio)} x the prediction: something has changed on "
        f"{drift.cluster}"
    )


def odds_in_words(odds: float) -> str:
    """Never more than it is: `97 %`, `99.4 %`, `more than 99.9 %`."""
    if odds < 0.01:
        return "less than 1 %"
    if odds > 0.999:
        return "more than 99.9 %"
    tenths = math.floor(odds * 1000 + 1e-9)
    return f"{tenths // 10} %" if odds < 0.99 else f"{tenths / 10:g} %"


def share_in_words(share: float) -> str:
    """`90 %`, `99.9 %`."""
    return f"{round(100 * share, 1):g} %"


_MORE = {"time": "{} x as long", "cost": "{} x the cost", "node-hours": "{} x the node-hours"}


def why_not(
    prediction: Prediction,
    best: Prediction | None,
    objective: Objective,
    *,
    nodes: int,
    best_nodes: int,
    priced: bool,
    odds: float | None = None,
) -> str:
    """Why a row that ends was not taken. best: the chosen row's, None where none was.
    odds: to keep the deadline."""
    if odds is not None and odds < objective.sure:
        over_s = prediction.total_s - (objective.deadline_s or math.inf)
        kept = f"keeps the deadline with {odds_in_words(odds)}"
        return f"{kept}, misses it by {duration(over_s)} as predicted" if over_s > 0 else kept
    if best is None:
        return "will not do"
    value = measure(prediction, objective, priced=priced)
    least = measure(best, objective, priced=priced)
    same = abs(value - least) <= least * 1e-9
    if objective.kind == "balanced":
        dearer = _price_ratio(prediction, best, priced=priced)
        if same and dearer > 1.005:
            return f"no faster, {_at_price(prediction, best, priced=priced)}"
        if not same and value > least and dearer < 0.995:
            longer = f"{ratio(value / least)} x as long"
            return f"{longer}, {_at_price(prediction, best, priced=priced)}"
    if same:
        if prediction.total_s > best.total_s * (1 + 1e-9):
            return f"{ratio(prediction.total_s / best.total_s)} x as long, and no cheaper"
        if nodes > best_nodes:
            return "no better, with more nodes"
        return "no better; listed later"
    if value < least * (1 - 1e-9):
        less = "not worth it" if objective.kind == "balanced" else "a near tie"
        return f"{faster_in_words(prediction, best, priced=priced)}: {less}"
    kind = {"deadline": "cost", "balanced": "time"}.get(objective.kind, objective.kind)
    if kind == "cost" and not priced:
        kind = "node-hours"
    if least <= 0:
        return f"costs {amount(value)}, the chosen row nothing"
    more = value / least
    if more < 1.005:
        return "longer by less than 1 %" if kind == "time" else "dearer by less than 1 %"
    return _MORE[kind].format(ratio(more))


def faster_in_words(faster: Prediction, chosen: Prediction, *, priced: bool) -> str:
    """`1 % faster, at 10 x the cost`; of two rows of which the slower was chosen."""
    gain = 1.0 - faster.total_s / chosen.total_s
    share = f"{100 * gain:.1f} %" if gain >= 0.0005 else "less than 0.1 %"
    return f"{share} faster, {_at_price(faster, chosen, priced=priced)}"


def _at_price(one: Prediction, chosen: Prediction, *, priced: bool) -> str:
    """`at 10 x the cost`, beside the chosen row's."""
    price, paid, what = _prices(one, chosen, priced=priced)
    if price <= 0:
        return "for nothing"
    return (
        f"at {ratio(price / paid)} x {what}"
        if paid > 0
        else f"at {amount(price)}, not for free"
    )


def _price_ratio(one: Prediction, chosen: Prediction, *, priced: bool) -> float:
    price, paid, _ = _prices(one, chosen, priced=priced)
    return price / paid if paid > 0 else math.inf


def _prices(one: Prediction, chosen: Prediction, *, priced: bool) -> tuple[float, float, str]:
    """What the two are paid with: money, or node-hours where neither costs any."""
    if priced and (one.cost > 0 or chosen.cost > 0):
        return one.cost, chosen.cost, "the cost"
    return one.node_hours, chosen.node_hours, "the node-hours"


def term_seconds(prediction: Prediction) -> dict[str, float]:
    """What the total is made of, in the order in which it passes."""
    return {
        "queue": prediction.queue_s,
        "stage": prediction.stage_s,
        "start": prediction.start_s,
        "step": prediction.steps * prediction.step_s,
        "checkpoint": prediction.checkpoints * prediction.checkpoint_s,
        "lost": prediction.lost_s,
    }


def interval_in_words(prediction: Prediction, *, from_ratio: float = 1.0) -> str:
    """` (90 %: 20 s to 4 min)`; empty where it is not known, or less wide."""
    low_s, high_s = prediction.total_low_s, prediction.total_high_s
    if low_s is None or high_s is None or high_s < from_ratio * low_s:
        return ""
    return f" (90 %: {duration(low_s)} to {duration(high_s)})"


def dominant_in_words(prediction: Prediction) -> str:
    """The term that takes most of the time, and its share."""
    seconds = term_seconds(prediction)[prediction.dominant]
    share = seconds / prediction.total_s if prediction.total_s > 0 else 0.0
    verb = "is" if prediction.dominant in ("queue", "stage", "start") else "are"
    return f"{TERM_NAMES[prediction.dominant]} {verb} {share:.0%} of the time"


TERM_NAMES = {
    "queue": "waiting in the queue",
    "stage": "staging",
    "start": "start-up",
    "step": "training steps",
    "checkpoint": "checkpoints",
    "lost": "interruptions",
}
