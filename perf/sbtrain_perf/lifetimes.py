"""Learns when partitions preempt: ages of attempts, a law for each partition, its gate.

An attempt that was preempted died at its age; one that ended for any other reason (done,
failed, cancelled, out of time, a node that failed, still running) is censored there. Nodes
that fail are no property of a partition's lifetimes: plans join them by their own rate. Each
record counts one in one bin, so that a wrong one moves the law by one attempt at most.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sbtrain_perf.coefficients import Coefficients, LearntLifetime, learnt_lifetime
from sbtrain_perf.gate import CHANCE, MOST_FOLDS, GateResult
from sbtrain_perf.group_fits import Key, grouped
from sbtrain_perf.measured import Refusal
from sbtrain_perf.models.lifetime import Lifetime
from sbtrain_perf.terms import law_of

LONGEST_AGE_S = 1e8  # no attempt lasts three years
FAR = 10.0  # times as long as any other attempt in the partition is not believed
FEWEST_TO_COMPARE = 4
STATED_WORTH = 2.0  # interruptions: a mean known within a factor of 3 at 90 %. Our choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Lived:
    """How long one attempt held its allocation, in seconds, and whether it was preempted.

    stated_mean_s: what the site said of the partition when it was planned; 0: nothing.
    """

    run_id: str
    attempt: int
    cluster: str
    partition: str
    age_s: float
    preempted: bool
    stated_mean_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntLaws:
    """What refit keeps of lifetimes. entries: of what is promoted."""

    entries: tuple[LearntLifetime, ...]
    verdicts: tuple[GateResult, ...]
    refused: tuple[Refusal, ...]


def learn_lifetimes(lived: Sequence[Lived], base: Coefficients) -> LearntLaws:
    """A law for each partition that preempts, or is said to.

    lived: in the order of submission; what a partition's site states last is believed.
    """
    refused: list[Refusal] = []
    seen: dict[tuple[str, int], Lived] = {}
    for one in lived:
        if math.isfinite(one.age_s) and 0.0 <= one.age_s <= LONGEST_AGE_S:
            seen[one.run_id, one.attempt] = one
        else:
            refused.append(_refusal(one, f"an attempt of {one.age_s:.3g} s"))
    entries, verdicts = [], []
    groups = grouped(seen.values(), lambda one: (one.cluster, one.partition))
    for place in sorted(groups, key=repr):
        group, far = _without_far(groups[place])
        refused += far
        if not group[-1].stated_mean_s and not any(one.preempted for one in group):
            continue
        entry = _learnt(group, base)
        known = learnt_lifetime(base, entry.cluster, entry.partition)
        verdict = _judge(("lifetime", *place), group, entry, known, base)
        if verdict is not None:
            verdicts.append(verdict)
        if verdict is None or verdict.promoted:
            entries.append(entry)
    return LearntLaws(entries=tuple(entries), verdicts=tuple(verdicts), refused=tuple(refused))


def _refusal(one: Lived, reason: str) -> Refusal:
    return Refusal(run_id=one.run_id, attempt=one.attempt, term="lifetime", reason=reason)


def _without_far(group: list[Lived]) -> tuple[list[Lived], list[Refusal]]:
    """An attempt that outlasted all others many times tells of a clock, not of a partition."""
    if len(group) < FEWEST_TO_COMPARE:
        return group, []
    longest = max(group, key=lambda one: one.age_s)
    others = [one for one in group if one is not longest]
    usual_s = max(one.age_s for one in others)
    if longest.age_s <= FAR * max(usual_s, group[-1].stated_mean_s):
        return group, []
    reason = f"an attempt of {longest.age_s:.3g} s where {usual_s:.3g} s are the most"
    return others, [_refusal(longest, reason)]


def _learnt(group: Sequence[Lived], base: Coefficients) -> LearntLifetime:
    law = _law(group, _stated_s(group, base))
    return LearntLifetime(
        cluster=group[0].cluster,
        partition=group[0].partition,
        edges_s=law.edges_s,
        hazards_1_s=law.hazards_1_s,
        mean_s=law.mean_s,
        attempts=len(group),
        ended=sum(one.preempted for one in group),
        runs=tuple(sorted({one.run_id for one in group})),
    )


def _stated_s(group: Sequence[Lived], base: Coefficients) -> float:
    return group[-1].stated_mean_s or base.base.failure.unknown_preemption_s.value


def _mean_s(group: Sequence[Lived], stated_s: float) -> float:
    """What the law's prior is centred on: the stated mean, worth STATED_WORTH interruptions,
    and all time that was lived by interruption since. Ages alone tell the shape."""
    lived_s = sum(one.age_s for one in group)
    ended = sum(one.preempted for one in group)
    return (STATED_WORTH * stated_s + lived_s) / (STATED_WORTH + ended)


def _edges_s(group: Sequence[Lived], stated_s: float) -> tuple[float, ...]:
    from sbtrain_perf.fitting.lifetime import edges_about, finer_edges

    ages_s = [one.age_s for one in group if one.preempted]
    return finer_edges(edges_about(_mean_s(group, stated_s)), ages_s)


def _law(group: Sequence[Lived], stated_s: float) -> Lifetime:
    from sbtrain_perf.fitting.lifetime import learn_lifetime  # scipy takes a second

    return learn_lifetime(
        _mean_s(group, stated_s),
        [one.age_s for one in group],
        ended=[one.preempted for one in group],
        edges_s=_edges_s(group, stated_s),
    )


def _judge(
    key: Key,
    group: Sequence[Lived],
    entry: LearntLifetime,
    known: LearntLifetime | None,
    base: Coefficients,
) -> GateResult | None:
    """By the Brier score of survival on runs left out, as gate.judge does by error.

    Before: the law in use, learnt anew without the runs left out where it had them. None
    where it is the same.
    """
    if known is not None and dataclasses.replace(known, mean_s=entry.mean_s) == entry:
        return None
    stated_s = _stated_s(group, base)
    had = frozenset(known.runs) if known else frozenset()
    fresh = law_of(known) if known else Lifetime.exponential(1.0 / stated_s)
    edges = _edges_s(group, stated_s)
    before: dict[str, float] = {}
    after: dict[str, float] = {}
    for first in range(min(len(entry.runs), MOST_FOLDS)):
        fold = frozenset(entry.runs[first::MOST_FOLDS])
        rest = [one for one in group if one.run_id not in fold]
        new = _law(rest, stated_s)
        old = _law([one for one in rest if one.run_id in had], stated_s)
        for run in fold:
            attempts = [one for one in group if one.run_id == run]
            after[run] = _brier(new, attempts, edges)
            before[run] = _brier(old if run in had else fresh, attempts, edges)
    rises = np.array([after[run] - before[run] for run in after])
    chance = (
        CHANCE * float(rises.std(ddof=1)) / math.sqrt(len(rises)) if len(rises) > 1 else 0.0
    )
    return GateResult(
        key=key,
        runs=len(entry.runs),
        before=float(np.mean(list(before.values()))),
        after=float(np.mean(list(after.values()))),
        tolerance=chance + 1e-9,
    )


def _brier(law: Lifetime, attempts: Sequence[Lived], edges_s: Sequence[float]) -> float:
    """Mean of (survival - alive)^2 at the edges; a censored attempt's up to its age."""
    survival = law.survival(np.array(edges_s))
    squares = [
        (float(alive) - (one.age_s > edge)) ** 2
        for one in attempts
        for edge, alive in zip(edges_s, survival, strict=True)
        if one.preempted or one.age_s > edge
    ]
    return float(np.mean(squares)) if squares else 0.0
