"""The planner's choice among measured configurations, and what it gives away.

The rule is the planner's own code (sbtrain_perf.near_tie): of the configurations predicted
to be nearly fastest the one that spares more nodes than it gives away of the time; under
node-hours the least, of equal ones that with the fewest nodes. Values are throughput
(objective time: a given number of samples ends soonest) and throughput a node (objective
node-hours: it ends with the fewest).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from sbtrain_perf.near_tie import NEAR, nearly_fastest

Objective = Literal["time", "node-hours"]
OBJECTIVES: tuple[Objective, ...] = ("time", "node-hours")
CLOSE = 0.05  # a choice within this of the best is as good, by the bar


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A configuration of a curve. Throughputs in samples or updates a second.

    nodes: all that it holds, servers included. size: what a yardstick would take most of
    (workers, or GPUs). fitted: whether the fit has seen it.
    """

    label: str
    nodes: int
    size: int
    servers: int
    measured: float
    predicted: float
    fitted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One workload on one kind of machine, in all its measured configurations."""

    source: str
    name: str
    options: tuple[Option, ...]

    @property
    def fitted(self) -> int:
        return sum(option.fitted for option in self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """regret: share of the best's measured value that the chosen configuration lacks.

    servers: decisions about the number of servers, one for every number of workers that was
    measured with several; right_servers: those that came out right.
    """

    source: str
    name: str
    objective: Objective
    rule: str
    options: int
    fitted: int
    chosen: str
    best: str
    regret: float
    servers: int
    right_servers: int


Pick = Callable[[Sequence[Option]], Option]


def choices_on(curve: Curve, objective: Objective) -> list[Choice]:
    """The planner's choice, and that of the yardstick that takes as much as there is."""
    rules: dict[str, Pick] = {"ours": _planned(objective), "most": _most}
    best = _best(curve.options, lambda option: _worth(option, option.measured, objective))
    choices = []
    for rule, pick in rules.items():
        chosen = pick(curve.options)
        ratio = _worth(chosen, chosen.measured, objective) / _worth(
            best, best.measured, objective
        )
        decisions = _server_decisions(curve, pick, objective)
        choices.append(
            Choice(
                source=curve.source,
                name=curve.name,
                objective=objective,
                rule=rule,
                options=len(curve.options),
                fitted=curve.fitted,
                chosen=chosen.label,
                best=best.label,
                regret=1.0 - ratio,
                servers=len(decisions),
                right_servers=sum(decisions),
            )
        )
    return choices


def _worth(option: Option, throughput: float, objective: Objective) -> float:
    return throughput / option.nodes if objective == "node-hours" else throughput


def _planned(objective: Objective) -> Pick:
    """What the planner takes by its predictions; node-hours stand in for the price."""

    def value(option: Option) -> float:
        return _worth(option, option.predicted, objective)

    def nearly(options: Sequence[Option]) -> Option:
        seconds = np.array([1.0 / value(option) for option in options])
        nodes = np.array([option.nodes for option in options])
        return options[nearly_fastest(seconds, nodes * seconds, nodes)]

    return nearly if objective == "time" else lambda options: _best(options, value)


def _most(options: Sequence[Option]) -> Option:
    """The yardstick takes as much as there is, on few nodes and with few servers."""
    return min(options, key=lambda option: (-option.size, option.nodes))


def _best(options: Sequence[Option], value: Callable[[Option], float]) -> Option:
    return min(options, key=lambda option: (-value(option), option.nodes))


def _server_decisions(curve: Curve, pick: Pick, objective: Objective) -> list[bool]:
    """For every number of workers that was measured with several numbers of servers.

    Right is the best measured number, and a smaller one that is slower by no more than runs
    of one configuration differ.
    """
    by_size: dict[int, list[Option]] = {}
    for option in curve.options:
        if option.servers:
            by_size.setdefault(option.size, []).append(option)
    decisions = []
    for options in by_size.values():
        if len({option.servers for option in options}) < 2:
            continue
        chosen = pick(options)
        best = _best(options, lambda option: _worth(option, option.measured, objective))
        ratio = _worth(chosen, chosen.measured, objective) / _worth(
            best, best.measured, objective
        )
        tied = chosen.servers < best.servers and ratio >= 1.0 - NEAR
        decisions.append(chosen.servers == best.servers or tied)
    return decisions


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Over the curves of a source, or of "all". Shares and regrets 0 to 1."""

    source: str
    objective: Objective
    rule: str
    curves: int
    within_5: float
    mean_regret: float
    worst_regret: float
    servers: int
    right_servers: float | None


def summarise(choices: Sequence[Choice]) -> list[Summary]:
    """By source (then "all"), objective and rule."""
    sources = list(dict.fromkeys(choice.source for choice in choices))
    keys = dict.fromkeys((choice.objective, choice.rule) for choice in choices)
    found = []
    for objective, rule in keys:
        for source in [*sources, "all"]:
            kept = [
                choice
                for choice in choices
                if (choice.objective, choice.rule) == (objective, rule)
                and source in (choice.source, "all")
            ]
            if kept:
                found.append(_summary(source, objective, rule, kept))
    return found


def _summary(source: str, objective: Objective, rule: str, kept: Sequence[Choice]) -> Summary:
    decisions = sum(choice.servers for choice in kept)
    right = sum(choice.right_servers for choice in kept)
    return Summary(
        source=source,
        objective=objective,
        rule=rule,
        curves=len(kept),
        within_5=statistics.fmean(choice.regret <= CLOSE for choice in kept),
        mean_regret=statistics.fmean(choice.regret for choice in kept),
        worst_regret=max(choice.regret for choice in kept),
        servers=decisions,
        right_servers=right / decisions if decisions else None,
    )
