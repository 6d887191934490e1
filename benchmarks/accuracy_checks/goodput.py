"""Checkpoint intervals chosen by lifetimes, against the best of a simulation of attempts.

Every region's published lifetimes are the truth that attempts are drawn from; a job on k
servers stops with the first of them. The simulation walks restore, work and saves of drawn
attempts at every interval of a grid, and its best is what 100 % means. "Learnt online" sees
only what its own attempts show: one death, and the other servers censored at that age. It
starts from a prior fitted on the other regions, or, cold, from one interruption in 118,000
seconds, which is what the planner assumes of a partition whose site states nothing. The planner
itself sees one age an attempt, and keeps what its gate promotes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accuracy_checks.checking import Check, Planner
from accuracy_checks.replay import planned_law
from sbtrain_perf.fitting.lifetime import (
    CAP_H,
    HOUR_S,
    EndedByHour,
    LifetimeBelief,
    constant_belief,
    edges_about,
    fit_prior,
)
from sbtrain_perf.lifetimes import Lived
from sbtrain_perf.models.lifetime import Lifetime
from sbtrain_perf.models.preemption import best_interval_s
from sbtrain_perf.score.cmdare_lifetime import ended_by_hour, read_aged

Floats = NDArray[np.float64]

SERVERS = (1, 4, 8)
CHECKPOINT_S = (10.0, 120.0)
UNKNOWN_S = 118_000.0
RESTART_S, DELAY_S = 80.0, 60.0  # a cold replacement as published; a requeue
ATTEMPTS = 10_000
SEEN = (0, 1, 3, 10, 30)  # attempts before the interval is chosen
SEEDS = (1,)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Simulated attempts of one law, with saves of one length, and their best goodput."""

    ages_s: Floats
    save_s: float
    best: float

    @classmethod
    def of(cls, ages_s: Floats, save_s: float) -> _Case:
        coarse = np.geomspace(20.0, 12 * HOUR_S, 200)
        values = [_goodput(ages_s, float(at), save_s) for at in coarse]
        top = float(coarse[int(np.argmax(values))])
        fine = np.geomspace(0.9 * top, 1.1 * top, 200)
        values += [_goodput(ages_s, float(at), save_s) for at in fine]
        return cls(ages_s=ages_s, save_s=save_s, best=max(values))

    def share(self, interval_s: float) -> float:
        """Goodput of an interval, per cent of the best."""
        return 100.0 * _goodput(self.ages_s, interval_s, self.save_s) / self.best


def checks(data: Path, scratch: Path) -> list[Check]:
    del scratch
    groups = list(ended_by_hour(read_aged(data)).values())
    known: list[float] = []
    young: list[float] = []
    learnt: dict[str, dict[int, list[float]]] = {
        start: {seen: [] for seen in SEEN} for start in ("regions", "cold", "planner")
    }
    cold = constant_belief(UNKNOWN_S, edges_s=edges_about(UNKNOWN_S), cap_s=HOUR_S * CAP_H)
    for at, group in enumerate(groups):
        prior = fit_prior([g for g in groups if g is not group], gpu=group.gpu).belief()
        for servers in SERVERS:
            truth = _truth(group).first_of(servers)
            drawn = truth.ages_s(np.random.default_rng([at, servers]).random(ATTEMPTS))
            cases = [_Case.of(drawn, save_s) for save_s in CHECKPOINT_S]
            for case in cases:
                known.append(case.share(_chosen_s(truth, case.save_s)))
                young.append(case.share(math.sqrt(2.0 * case.save_s * truth.mean_s)))
            for seed in SEEDS:
                generator = np.random.default_rng([at, servers, seed])
                ages = truth.ages_s(generator.random(max(SEEN)))
                for seen in SEEN:
                    laws = {
                        "regions": _learnt(prior, ages[:seen], servers),
                        "cold": _learnt(cold, ages[:seen], servers),
                        "planner": planned_law(lived(ages[:seen])),
                    }
                    for start, law in laws.items():
                        learnt[start][seen] += [
                            case.share(_chosen_s(law, case.save_s)) for case in cases
                        ]
    shares, note = _every(learnt["planner"])
    own = Planner(value=statistics.fmean(shares), n=len(shares), note=note)
    return [
        Check(
            what="goodput of the interval, % of the simulated optimum, known hazard",
            value=statistics.fmean(known),
            planner=Planner(
                value=statistics.fmean(known), n=len(known), note="one function for both"
            ),
            bar=98.0,
            n=len(known),
            at_least=True,
            yardstick=f"Young from the mean lifetime {statistics.fmean(young):.1f}, "
            f"worst {min(young):.1f}",
            note=f"worst {min(known):.1f}",
        ),
        _online(
            "learnt online", learnt["regions"], Planner(note="learns nothing of other regions")
        ),
        _online("learnt online, nothing known before", learnt["cold"], own),
    ]


def _every(by_seen: Mapping[int, Sequence[float]]) -> tuple[list[float], str]:
    """All shares, and their means by attempts seen with the worst, in words."""
    every = [value for values in by_seen.values() for value in values]
    means = ", ".join(f"{seen}: {statistics.fmean(by_seen[seen]):.1f}" for seen in by_seen)
    return every, f"by attempts seen {means}; worst {min(every):.1f}"


def _online(how: str, by_seen: Mapping[int, Sequence[float]], planner: Planner) -> Check:
    every, note = _every(by_seen)
    return Check(
        what=f"goodput of the interval, % of the simulated optimum, {how}",
        value=statistics.fmean(every),
        planner=planner,
        bar=95.0,
        n=len(every),
        at_least=True,
        note=note,
    )


def lived(ages_s: Floats) -> list[Lived]:
    """Attempts that were preempted, as the ledgers of runs tell of them."""
    return [
        Lived(
            run_id=f"run-{at:06}",
            attempt=0,
            cluster="public",
            partition="spot",
            age_s=age_s,
            preempted=True,
        )
        for at, age_s in enumerate(ages_s.tolist())
    ]


def _learnt(start: LifetimeBelief, ages_s: Floats, servers: int) -> Lifetime:
    """Of each attempt: its first death, and the others alive until then."""
    belief = start.observe(
        np.repeat(ages_s, servers).tolist(),
        ended=([True] + [False] * (servers - 1)) * len(ages_s),
    )
    return belief.predictive(servers=servers)


def _truth(group: EndedByHour) -> Lifetime:
    alive = [1.0 - ended / group.servers for ended in group.ended]
    edges = [HOUR_S * hour for hour in group.hours]
    return Lifetime.surviving(edges, alive, cap_s=HOUR_S * CAP_H)


def _chosen_s(law: Lifetime, save_s: float) -> float:
    return best_interval_s(law, checkpoint_s=save_s, restart_s=RESTART_S, delay_s=DELAY_S)


def _goodput(ages_s: Floats, interval_s: float, save_s: float) -> float:
    """Kept work over time, of attempts that end at the given ages."""
    saves = np.floor(np.maximum(ages_s - RESTART_S, 0.0) / (interval_s + save_s))
    return float(interval_s * saves.sum() / (ages_s + DELAY_S).sum())
