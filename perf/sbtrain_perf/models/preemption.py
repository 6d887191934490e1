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
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.models.lifetime import Lifetime

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sbtrain_perf.models import Numbers
    from sbtrain_perf.models.lifetime_table import LifetimeTable

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
    cap_notice: float | None = None,
) -> float:
    """Share of the time (0 to 1) that is spent on work which is kept, in a long run.

    `(i sum_k S(restart + k (i + C)) + saved by notice) / (mean lifetime + delay)`, k from 1
    on, i the interval and C a checkpoint. `i / (i + C)` where the mean lifetime is infinite.
    cap_notice: of the cap (a job's own time limit is no surprise); as notice where not given.
    """
    found = _goodputs(
        lifetime,
        np.array([interval_s]),
        checkpoint_s=checkpoint_s,
        restart_s=restart_s,
        delay_s=delay_s,
        notice=notice,
        cap_notice=cap_notice,
    )
    return float(found[0])


def _goodputs(
    lifetime: Lifetime,
    interval_s: Floats,
    *,
    checkpoint_s: float,
    restart_s: float,
    delay_s: float,
    notice: float,
    cap_notice: float | None,
) -> Floats:
    """Of several intervals, shape (intervals,): their segments lie one after the other."""
    segment_s = interval_s + checkpoint_s
    mean_s = lifetime.mean_s
    if not math.isfinite(mean_s):
        return np.asarray(interval_s / segment_s)
    counts = np.minimum(np.ceil(_forgotten_s(lifetime) / segment_s), MOST_SEGMENTS).astype(int)
    last = np.cumsum(counts) - 1
    first = last + 1 - counts
    length_s = np.repeat(segment_s, counts)
    ends = restart_s + length_s * (np.arange(counts.sum()) - np.repeat(first, counts) + 1.0)
    alive = lifetime.survival(ends)
    rest_s = mean_s - lifetime.lived_s(ends[last])
    # Beyond the last of them, the sum by the trapezoid rule.
    beyond = np.maximum(rest_s / segment_s - alive[last] / 2.0, 0.0)
    kept_s = interval_s * (np.add.reduceat(alive, first) + beyond)
    if notice > 0.0:
        worked = lifetime.lived_s(ends - checkpoint_s) - lifetime.lived_s(ends - length_s)
        worked_s = np.add.reduceat(worked, first) + rest_s * interval_s / segment_s
        kept_s += notice * (worked_s - kept_s)
    reached = _reaching(lifetime)
    if cap_notice is not None and reached > 0.0:
        at_cap_s = max(lifetime.cap_s - restart_s, 0.0) % segment_s
        kept_s += (cap_notice - notice) * reached * np.minimum(at_cap_s, interval_s)
    return np.asarray(kept_s / (mean_s + delay_s))


def best_interval_s(
    lifetime: Lifetime,
    *,
    checkpoint_s: float,
    restart_s: float = 0.0,
    delay_s: float = 0.0,
    notice: float = 0.0,
    cap_notice: float | None = None,
    longest_s: float = LONGEST_S,
) -> float:
    """Seconds of work between checkpoints of the greatest goodput, up to longest_s.

    Searched on a logarithmic grid that is refined twice around its best point, since a
    capped law has many local optima; from half of Young's interval at the greatest hazard
    on. longest_s where nothing interrupts, or where only interruptions with notice do. A law
    that lets some live for ever is cut at a month.
    """
    everything = notice >= 1.0 and (cap_notice is None or cap_notice >= 1.0)
    if _never_interrupts(lifetime) or everything:
        return longest_s
    if not math.isfinite(lifetime.mean_s):
        lifetime = lifetime.capped(MONTH_S)
    longest_s = min(longest_s, lifetime.cap_s)
    greatest_1_s = max(*lifetime.hazards_1_s, 1.0 / max(lifetime.mean_s, 1.0))
    least_s = math.sqrt(2.0 * checkpoint_s / greatest_1_s) / 2.0
    shortest_s = max(checkpoint_s / 4.0, least_s, 0.25)
    if shortest_s >= longest_s:
        return longest_s
    low, high = math.log(shortest_s), math.log(longest_s)
    best_s = longest_s
    for points in (97, 33, 33):
        grid = np.exp(np.linspace(low, high, points))
        values = _goodputs(
            lifetime,
            grid,
            checkpoint_s=checkpoint_s,
            restart_s=restart_s,
            delay_s=delay_s,
            notice=notice,
            cap_notice=cap_notice,
        )
        best = int(np.argmax(values))
        best_s = float(grid[best])
        low = math.log(grid[max(best - 1, 0)])
        high = math.log(grid[min(best + 1, points - 1)])
    return best_s


def equivalent_hazards_1_s(
    laws: LifetimeTable,
    *,
    checkpoint_s: Floats,
    restart_s: Floats,
    delay_s: float = 0.0,
    notice: Floats | float = 0.0,
) -> Floats:
    """The constant hazards (interruptions a second) that cost a long run as much as the laws.

    Under it the best interval's goodput is that under the law, both to first order, so that
    forms for a constant hazard (`resumed_s`, models.checkpoint.interval_s) may stand for the
    law where many candidates are compared. 0 where nothing interrupts; the greatest that is
    tried, one a second, where the law leaves no work. Shapes (laws,).
    """
    for_ever = np.full(len(laws.caps_s), np.inf)
    mean_s = laws.lived_s(for_ever)
    endless = np.isinf(mean_s)  # some live for ever: cut at a month
    mean_s = np.where(endless, laws.lived_s(np.full_like(mean_s, MONTH_S)), mean_s)
    alive = np.where(endless & (restart_s >= MONTH_S), 0.0, laws.survival(restart_s))
    left_s = mean_s - laws.lived_s(np.where(endless, np.minimum(restart_s, MONTH_S), restart_s))
    costs = (checkpoint_s, delay_s, notice)
    wanted = _first_order_goodput(mean_s, alive, left_s, *costs)
    low, high = np.full_like(mean_s, math.log(1e-10)), np.zeros_like(mean_s)
    for _ in range(40):
        middle = (low + high) / 2.0
        hazard = np.exp(middle)
        alive = np.exp(-hazard * restart_s)
        worth = _first_order_goodput(1.0 / hazard, alive, alive / hazard, *costs)
        low, high = (
            np.where(worth > wanted, middle, low),
            np.where(worth > wanted, high, middle),
        )
    return np.where(laws.interrupts, np.exp((low + high) / 2.0), 0.0)


def first_order_interval_s(
    lifetime: Lifetime, *, checkpoint_s: float, restart_s: float = 0.0, notice: float = 0.0
) -> float:
    """Young's (1974) interval, with the mean that one who restarted has left to live.

    Near `best_interval_s` where a hazard changes little from one checkpoint to the next, at a
    hundredth of its time.
    """
    alive = float(lifetime.survival(restart_s))
    if _never_interrupts(lifetime) or notice >= 1.0 or alive <= 0.0:
        return LONGEST_S
    if not math.isfinite(lifetime.mean_s):
        lifetime = lifetime.capped(MONTH_S)
    left_s = (lifetime.mean_s - float(lifetime.lived_s(restart_s))) / alive
    segment_s = math.sqrt(2.0 * checkpoint_s * left_s / (1.0 - notice))
    return min(max(segment_s - checkpoint_s, checkpoint_s, 1.0), LONGEST_S)


def _first_order_goodput(
    mean_s: Floats,
    alive: Floats,
    left_s: Floats,
    checkpoint_s: Floats,
    delay_s: float,
    notice: Floats | float,
) -> Floats:
    """At the best interval, with the sum over segments by Euler and Maclaurin: `(1 - C / s)
    (A - (1 - notice) s B / 2) / (mean + delay)`, B being alive after the restart, A lived
    from then on, s a segment."""
    lost = (1.0 - notice) * alive / 2.0
    longest_s = LONGEST_S + checkpoint_s
    with np.errstate(divide="ignore", invalid="ignore"):
        best_s = np.sqrt(checkpoint_s * left_s / lost)
    segment_s = np.where(lost > 0.0, np.minimum(best_s, longest_s), longest_s)
    segment_s = np.maximum(np.maximum(segment_s, checkpoint_s), 1e-9)
    kept_s = (1.0 - checkpoint_s / segment_s) * (left_s - lost * segment_s)
    some = (alive > 0.0) & (left_s > 0.0)
    return np.where(some, np.maximum(kept_s, 0.0), 0.0) / (mean_s + delay_s)


def makespan_s(
    lifetime: Lifetime,
    work_s: float,
    interval_s: float,
    *,
    checkpoint_s: float,
    restart_s: float = 0.0,
    delay_s: float = 0.0,
    notice: float = 0.0,
    cap_notice: float | None = None,
    most_blocks: int = MOST_SOLVED,
) -> float:
    """Expected seconds from the first attempt's start until work_s of work is done.

    With m segments to go, `E_m = L(r_m) + (1 - S(r_m)) delay + sum_k (P_k - g_k) E_(m-k) +
    g_k E_(m-k-1)`, r_m the age at which the attempt would be through with all, P_k the
    chance of an interruption with k segments kept, k < m, and g_k the share of a further one
    that notice keeps. Solved from m = 1 on; the last segment is as long as what is left and
    needs no checkpoint. Past ADDED_SEGMENTS and some lifetimes each further segment costs
    `interval / goodput`. Infinite where no segment is ever kept.

    most_blocks: as many unknowns are solved for; where segments are more, several make a
    block, of which an interruption keeps what was done but half an interval, on average.
    """
    segments = max(math.ceil(work_s / interval_s - 1e-9), 1)
    segment_s = interval_s + checkpoint_s
    mean_s = lifetime.mean_s
    if _never_interrupts(lifetime):
        return restart_s + work_s + (segments - 1) * checkpoint_s
    if not math.isfinite(mean_s):
        mean_s = MONTH_S
    attempt = math.ceil(min(_forgotten_s(lifetime), 4.0 * mean_s) / segment_s)
    solved = min(segments, max(ADDED_SEGMENTS, attempt), MOST_SOLVED)
    size = math.ceil(solved / most_blocks)  # segments of one block
    blocks = math.ceil(solved / size)
    if solved < segments:
        solved = blocks * size
    rest_s = (segments - solved) * interval_s
    last_work_s = work_s - rest_s - (blocks - 1) * size * interval_s
    last_s = last_work_s + (math.ceil(last_work_s / interval_s - 1e-9) - 1) * checkpoint_s
    ages = restart_s + size * segment_s * np.arange(blocks + 1.0)
    alive = lifetime.survival(ages)
    ended = -np.diff(np.concatenate(([1.0], alive)))
    ended[1] += ended[0]  # interrupted while restoring: as in the first segment
    caps = notice if cap_notice is None else cap_notice
    through = ages[:blocks] + last_s
    kept = partial(
        _kept_in_part,
        lifetime,
        ages[:blocks],
        interval_s=interval_s,
        size=size,
        notice=notice,
        cap_notice=caps,
    )
    gained = kept(ages[1:], work_s=size * interval_s)
    gained_last = kept(through, work_s=last_work_s)
    done = lifetime.survival(through)
    spent = lifetime.lived_s(through) + (1.0 - done) * delay_s
    left = np.zeros(blocks + 1)
    left[0] = restart_s  # all is saved, and yet an attempt has to find that out
    for m in range(1, blocks + 1):
        # Interrupted with k segments kept, k = 0 .. m-2; in the last one, m-1 are.
        last = (1.0 if m == 1 else alive[m - 1]) - done[m - 1]
        gain = np.append(gained[: m - 1], gained_last[m - 1])
        chances = np.append(ended[1:m], last) - gain
        if chances[0] >= 1.0 - 1e-12:
            return math.inf
        again = float(chances[1:] @ left[m - 1 : 0 : -1] + gain @ left[m - 1 :: -1])
        left[m] = (spent[m - 1] + again) / (1.0 - chances[0])
    if rest_s <= 0.0:
        return float(left[blocks])
    rate = goodput(
        lifetime,
        interval_s,
        checkpoint_s=checkpoint_s,
        restart_s=restart_s,
        delay_s=delay_s,
        notice=notice,
        cap_notice=cap_notice,
    )
    return float(left[blocks]) + rest_s / rate


def _kept_in_part(
    lifetime: Lifetime,
    began_s: Floats,
    over_s: Floats,
    *,
    work_s: float,
    interval_s: float,
    size: int,
    notice: float,
    cap_notice: float,
) -> Floats:
    """Of blocks of so much work between two ages, the chance of an interruption in it times
    the share of it that is kept."""
    if size == 1 and notice <= 0.0 and cap_notice <= 0.0:
        return np.zeros(len(began_s))
    alive, still = lifetime.survival(began_s), lifetime.survival(over_s)
    working = work_s / (over_s - began_s)
    worked_s = working * (lifetime.lived_s(over_s) - lifetime.lived_s(began_s))
    worked_s = worked_s - work_s * still
    within = (began_s < lifetime.cap_s) & (lifetime.cap_s < over_s)
    at_cap_s = np.where(within, lifetime.cap_s - began_s, 0.0)
    reached = _reaching(lifetime)
    cap_work_s = working * reached * at_cap_s
    struck = np.clip(alive - still - within * reached, 0.0, 1.0)
    before_cap_s = np.maximum(worked_s - cap_work_s, 0.0)
    if size == 1:
        kept_s = notice * before_cap_s + cap_notice * cap_work_s
    else:
        half_s = interval_s / 2.0
        kept_s = np.maximum(before_cap_s - (1.0 - notice) * half_s * struck, 0.0)
        kept_s += np.maximum(cap_work_s - (1.0 - cap_notice) * half_s * reached * within, 0.0)
    return np.asarray(np.clip(kept_s / work_s, 0.0, alive - still))


def _reaching(lifetime: Lifetime) -> float:
    """The share of allocations that live up to the cap."""
    if math.isinf(lifetime.cap_s):
        return 0.0
    return float(lifetime.survival(math.nextafter(lifetime.cap_s, 0.0)))


def _forgotten_s(lifetime: Lifetime) -> float:
    """The cap, or an age that one in 10^12 reaches."""
    if math.isfinite(lifetime.cap_s):
        return lifetime.cap_s
    last_s = lifetime.edges_s[-1] if lifetime.edges_s else 0.0
    hazard = lifetime.hazards_1_s[-1]
    return last_s + (27.7 / hazard if hazard > 0.0 else MONTH_S)


def _never_interrupts(lifetime: Lifetime) -> bool:
    return math.isinf(lifetime.cap_s) and not any(lifetime.hazards_1_s)
