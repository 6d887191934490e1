"""Whether runs still end within the intervals they were planned with.

Of each cluster, workload and term the last runs count, by the plan of each: an interval that
was given before the run. One in ten may lie outside; where more do than chance gives once in
a hundred times (binomial), something has changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from sbtrain_perf.coefficients import Drift
from sbtrain_perf.intervals import term_intervals
from sbtrain_perf.measured import TERMS, Sample

LAST_RUNS = 20
OUTSIDE = 0.1  # of what 90 % intervals leave out
ALARM = 0.01
_PREDICTED = {
    "stage": "stage_s",
    "start": "start_s",
    "step": "step_s",
    "checkpoint": "checkpoint_s",
}


def find_drift(samples: Sequence[Sample]) -> tuple[Drift, ...]:
    """Alarms, in a fixed order. samples: in the order of submission. Runs that were planned
    from shipped coefficients alone do not count: learning from them is the remedy."""
    found = []
    groups: dict[tuple[str, str, int], dict[str, list[Sample]]] = {}
    for sample in samples:
        timings = sample.timings
        if timings.plan.coefficients == "shipped" or not term_intervals(timings.prediction):
            continue
        key = (timings.cluster, timings.workload, TERMS.index(sample.term))
        groups.setdefault(key, {}).setdefault(timings.run_id, []).append(sample)
    for (cluster, workload, term), by_run in sorted(groups.items()):
        last = list(by_run.values())[-LAST_RUNS:]
        outside = [run for run in last if not _holds(run)]
        odds = binomial_tail(len(outside), len(last), OUTSIDE)
        if odds < ALARM:
            found.append(
                Drift(
                    cluster=cluster,
                    workload=workload,
                    term=TERMS[term],
                    runs=len(last),
                    outside=len(outside),
                    ratio=median(_ratio(run) for run in last),
                    odds=odds,
                )
            )
    return tuple(found)


def binomial_tail(least: int, trials: int, share: float) -> float:
    """Probability of at least so many successes."""
    return sum(
        math.comb(trials, k) * share**k * (1.0 - share) ** (trials - k)
        for k in range(least, trials + 1)
    )


def _holds(run: Sequence[Sample]) -> bool:
    interval = term_intervals(run[0].timings.prediction)[run[0].term]
    return interval.holds(median(sample.seconds for sample in run))


def _ratio(run: Sequence[Sample]) -> float:
    predicted = float(getattr(run[0].timings.prediction, _PREDICTED[run[0].term]))
    return median(sample.seconds for sample in run) / max(predicted, 1e-9)
