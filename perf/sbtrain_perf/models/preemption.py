"""What interruptions cost: preemption by a more urgent job, and failing nodes.

An attempt starts at age 0 of its allocation, restores (`restart_s`), works in segments of
`interval_s` with a checkpoint after each, and is interrupted at an age drawn from a
`Lifetime`; work since the last checkpoint is lost. After `delay_s` (the requeue) the next
attempt starts with an allocation of its own. Attempts renew the process, so that the
renewal-reward theorem (Ross, Introduction to Probability Models, ch. 7) gives goodput
and makespan for any law of lifetimes. An interruption that gives notice for long enough
to save loses nothing; `notice` is the share of those. Only the exponential law makes
these Daly's (2006) formula; its optimum is Young's (1974) where a checkpoint is short.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.models.lifetime import Lifetime

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sbtrain_perf.models import Numbers

    Floats = NDArray[np.float64]

MOST_SEGMENTS = 4000  # of one attempt that are summed one by one
LONGEST_S = 86_400.0  # between checkpoints
MONTH_S = 30.0 * 86_400.0
# Of a makespan, solved one by one; beyond, it grows linearly.
ADDED_SEGMENTS, MOST_SOLVED = 400, 4000


def resumed_s(run_s: Numbers, *, lost_share: Numbers) -> Numbers:
    """Expected seconds of a run that resumes after interruptions.

    `run_s / (1 - lost_share)`, infinite from 1 on. lost_share is the expected loss per
    second of progress: the sum over causes of hazard * (work redone + restart). First
    order: interruptions come at a constant rate and do not strike a restart.
    """
    left = 1.0 - np.asarray(lost_share)
    return np.where(left > 0.0, run_s / np.where(left > 0.0, left, 1.0), np.inf)


def restarted_s(run_s: Numbers, *, hazard_1_s: Numbers, restart_s: Numbers) -> Numbers:
    """Expected seconds of a run that starts anew after every interruption.

    `(1/hazard + restart) (exp(hazard*run) - 1)` for a constant hazard (interruptions a
    second); `run_s` where the hazard is 0. `anew_s` for any law.
    """
    hazard = np.asarray(hazard_1_s)
    safe = np.where(hazard > 0.0, hazard, 1.0)
    with np.errstate(over="ignore"):
        repeated_s = (1.0 / safe + restart_s) * np.expm1(np.minimum(safe * run_s, 700.0))
    return np.where(hazard > 0.0, repeated_s, run_s)


def anew_s(lifetime: Lifetime, run_s: float, *, delay_s: float = 0.0) -> float:
    """Expected seconds of a run of run_s that starts anew after every interruption.

    `(L(run) + (1 - S(run)) delay) / S(run)`, with S the survival and L its integral;
    infinite where no attempt lives that long.
    """
    alive = float(lifetime.survival(run_s))
    if alive <= 0.0:
        return math.inf
    return (float(lifetime.lived_s(run_s)) + (1.0 - alive) * delay_s) / alive


def goodput(
    lifetime: Lifetime,
    interval_s: float,
    *,
    checkpoint_s: float,
    restart_s: float = 0.0,
    delay_s: float = 0.0,
    notice: float = 0.0,
) -> float:
    """Share of the time (0 to 1) that is spent on work which is kept, in a long run.

    `(i sum_k S(restart + k (i + C)) + saved by notice) / (mean lifetime + delay)`, k from 1
    on, i the interval and C a checkpoint. `i / (i + C)` where the mean lifetime is infinite.
    """
    segment_s = interval_s + checkpoint_s
    mean_s = lifetime.mean_s
    if not math.isfinite(mean_s):
        return interval_s / segment_s
    segments = min(math.ceil(_forgotten_s(lifetime) / segment_s), MOST_SEGMENTS)
    ends = restart_s + segment_s * np.arange(1.0, segments + 1.0)
    alive = lifetime.survival(ends)
    rest_s = mean_s - float(lifetime.lived_s(ends[-1]))
    # Beyond the last of them, the sum by the trapezoid rule.
    kept_s = interval_s * (float(alive.sum()) + max(rest_s / segment_s - alive[-1] / 2.0, 0.0))
    if notice > 0.0:
        worked = lifetime.lived_s(ends - checkpoint_s) - lifetime.lived_s(ends - segment_s)
        worked_s = float(worked.sum()) + rest_s * interval_s / segment_s
        kept_s += notice * (worked_s - kept_s)
    return float(kept_s / (mean_s + delay_s))


def best_interval_s(
    lifetime: Lifetime,
    *,
    checkpoint_s: float,
    restart_s: float = 0.0,
    delay_s: float = 0.0,
    notice: float = 0.0,
    longest_s: float = LONGEST_S,
) -> float:
    """Seconds of work between checkpoints of the greatest goodput, up to longest_s.

    Searched on a logarithmic grid that is refined twice around its best point, since a
    capped law has many local optima. longest_s where nothing interrupts, or where only
    interruptions with notice do. A law that lets some live for ever is cut at a month.
    """
    shortest_s = max(checkpoint_s, 1.0) / 4.0
    if _never_interrupts(lifetime) or notice >= 1.0 or shortest_s >= longest_s:
        return longest_s
    if not math.isfinite(lifetime.mean_s):
        lifetime = lifetime.capped(MONTH_S)
    low, high = math.log(shortest_s), math.log(longest_s)
    best_s = longest_s
    for points in (97, 33, 33):
        grid = np.exp(np.linspace(low, high, points))
        values = [
            goodput(
                lifetime,
                float(at),
                checkpoint_s=checkpoint_s,
                restart_s=restart_s,
                delay_s=delay_s,
                notice=notice,
            )
            for at in grid
        ]
        best = int(np.argmax(values))
        best_s = float(grid[best])
        low = math.log(grid[max(best - 1, 0)])
        high = math.log(grid[min(best + 1, points - 1)])
    return best_s


def equivalent_hazard_1_s(
    lifetime: Lifetime,
    *,
    checkpoint_s: float,
    restart_s: float = 0.0,
    delay_s: float = 0.0,
    notice: float = 0.0,
) -> float:
    """The constant hazard (interruptions a second) that costs a long run as much as a law.

    Under it the best interval's goodput is that under the law, so that first-order forms for
    a constant hazard (`resumed_s`, models.checkpoint.interval_s) may stand for the law
    where many candidates are compared. 0 where nothing interrupts; the greatest that is
    tried, one a second, where the law leaves no work.
    """
    costs = {
        "checkpoint_s": checkpoint_s,
        "restart_s": restart_s,
        "delay_s": delay_s,
        "notice": notice,
    }
    if _never_interrupts(lifetime):
        return 0.0
    if not math.isfinite(lifetime.mean_s):
        lifetime = lifetime.capped(MONTH_S)
    wanted = goodput(lifetime, best_interval_s(lifetime, **costs), **costs)
    low, high = math.log(1e-10), 0.0
    for _ in range(24):
        middle = (low + high) / 2.0
        hazard = math.exp(middle)
        interval_s = _daly_s(checkpoint_s, hazard * (1.0 - notice))
        if goodput(Lifetime.exponential(hazard), interval_s, **costs) > wanted:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2.0)


def _daly_s(checkpoint_s: float, hazard_1_s: float) -> float:
    """Daly's (2006) higher-order interval, eq. 37; a day at most."""
    if hazard_1_s <= 0.0:
        return LONGEST_S
    half = checkpoint_s * hazard_1_s / 2.0
    if half >= 1.0:
        return 1.0 / hazard_1_s
    young_s = math.sqrt(2.0 * checkpoint_s / hazard_1_s)
    grown_s = young_s * (1.0 + math.sqrt(half) / 3.0 + half / 9.0)
    return min(max(grown_s - checkpoint_s, 1.0), LONGEST_S)


def makespan_s(
    lifetime: Lifetime,
    work_s: float,
    interval_s: float,
    *,
    checkpoint_s: float,
    restart_s: float = 0.0,
    delay_s: float = 0.0,
) -> float:
    """Expected seconds from the first attempt's start until work_s of work is done.

    With m segments to go, `E_m = L(r_m) + (1 - S(r_m)) delay + sum_k P_k E_(m-k)`, r_m the
    age at which the attempt would be through with all, P_k the chance of k segments kept
    before an interruption, k < m. Solved from m = 1 on; the last segment is as long as what
    is left and needs no checkpoint. Past ADDED_SEGMENTS and some lifetimes each further
    segment costs `interval / goodput`. Infinite where no segment is ever kept.
    """
    segments = max(math.ceil(work_s / interval_s - 1e-9), 1)
    last_s = work_s - (segments - 1) * interval_s
    segment_s = interval_s + checkpoint_s
    mean_s = lifetime.mean_s
    if _never_interrupts(lifetime):
        return restart_s + work_s + (segments - 1) * checkpoint_s
    if not math.isfinite(mean_s):
        mean_s = MONTH_S
    attempt = math.ceil(min(_forgotten_s(lifetime), 4.0 * mean_s) / segment_s)
    solved = min(segments, max(ADDED_SEGMENTS, attempt), MOST_SOLVED)
    ages = restart_s + segment_s * np.arange(solved + 1.0)
    alive = lifetime.survival(ages)
    ended = -np.diff(np.concatenate(([1.0], alive)))
    ended[1] += ended[0]  # interrupted while restoring: as in the first segment
    left = np.zeros(solved + 1)
    for m in range(1, solved + 1):
        through = ages[m - 1] + last_s
        done = float(lifetime.survival(through))
        # Interrupted with k segments kept, k = 0 .. m-2; in the last one, m-1 are.
        chances = np.append(ended[1:m], alive[m - 1] - done)
        if m == 1:
            chances[0] = 1.0 - done
        if chances[0] >= 1.0 - 1e-12:
            return math.inf
        again = float(chances[1:] @ left[m - 1 : 0 : -1])
        spent = float(lifetime.lived_s(through)) + (1.0 - done) * delay_s
        left[m] = (spent + again) / (1.0 - chances[0])
    if solved == segments:
        return float(left[solved])
    rate = goodput(
        lifetime, interval_s, checkpoint_s=checkpoint_s, restart_s=restart_s, delay_s=delay_s
    )
    return float(left[solved]) + (segments - solved) * interval_s / rate


def _forgotten_s(lifetime: Lifetime) -> float:
    """The cap, or an age that one in 10^12 reaches."""
    if math.isfinite(lifetime.cap_s):
        return lifetime.cap_s
    last_s = lifetime.edges_s[-1] if lifetime.edges_s else 0.0
    hazard = lifetime.hazards_1_s[-1]
    return last_s + (27.7 / hazard if hazard > 0.0 else MONTH_S)


def _never_interrupts(lifetime: Lifetime) -> bool:
    return math.isinf(lifetime.cap_s) and not any(lifetime.hazards_1_s)
