"""Predictions by the whole law of lifetimes, for the few rows that are shown.

All candidates are compared by a constant hazard that costs a long run as much. Where a law
was learnt, the rows that are left get their checkpoint interval and expected makespan from
it, joined with failing nodes and cut at the time limit, of which a job has notice.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.models.lifetime import Lifetime
from sbtrain_perf.models.preemption import (
    anew_s,
    best_interval_s,
    first_order_interval_s,
    makespan_s,
)
from sbtrain_perf.terms import law_of

if TYPE_CHECKING:
    from sbtrain_perf.predict import Candidates, Forecast, Predictor

BLOCKS = 64  # unknowns of a makespan; more change it by less than 1 %


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expected:
    """Of one row: seconds between checkpoints, number of those, all seconds from its first
    start, and seconds that nodes were held."""

    interval_s: float
    checkpoints: float
    ended_s: float
    held_s: float


_NEVER = _Expected(interval_s=math.inf, checkpoints=0.0, ended_s=math.inf, held_s=math.inf)


class LawForecasts:
    """Rows of partitions with a learnt law, each worked out once."""

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._known: dict[tuple[int, int, int], _Expected] = {}

    def forecast(
        self, candidates: Candidates, forecast: Forecast, *, best: int | None = None
    ) -> Forecast:
        """The forecast of single rows, by the law where there is one.

        Args:
            best: index of the row whose checkpoint interval is searched for exactly, and
                stays so; that of the others is Young's, for what their allocations have
                left to live.
        """
        terms = self._predictor.terms
        rows = [
            at
            for at, partition in enumerate(candidates.partition.tolist())
            if terms.lifetimes[partition] is not None
        ]
        if not rows:
            return forecast
        interval, saves = forecast.interval_s.copy(), forecast.checkpoints.copy()
        total, held = forecast.total_s.copy(), forecast.node_hours.copy()
        for at in rows:
            one = self._expected(candidates, forecast, at, exact=at == best)
            interval[at], saves[at] = one.interval_s, one.checkpoints
            total[at] = forecast.queue_s[at] + one.ended_s
            held[at] = candidates.low[at] * one.held_s / 3600.0
        price = terms.price[candidates.partition]
        set_up = forecast.stage_s + forecast.start_s + forecast.work_s
        run = set_up + saves * forecast.checkpoint_s
        return dataclasses.replace(
            forecast,
            interval_s=interval,
            checkpoints=saves,
            total_s=total,
            lost_s=total - forecast.queue_s - run,
            node_hours=held,
            cost=np.where(price > 0.0, held, 0.0) * price,
        )

    def _expected(
        self, candidates: Candidates, forecast: Forecast, at: int, *, exact: bool
    ) -> _Expected:
        key = candidates.key(at)
        if forecast.restarts[at] > self._predictor.most_restarts:
            return _NEVER
        if exact or key not in self._known:
            self._known[key] = self._work_out(candidates, forecast, at, exact=exact)
        return self._known[key]

    def _work_out(
        self, candidates: Candidates, forecast: Forecast, at: int, *, exact: bool
    ) -> _Expected:
        predictor, terms = self._predictor, self._predictor.terms
        partition, _, nodes = candidates.key(at)
        learnt = terms.lifetimes[partition]
        law = law_of(learnt) if learnt else Lifetime.exponential(0.0)
        failing_1_s = nodes / predictor.base.failure.node_mtbf_s.value
        struck = law.joined(Lifetime.exponential(failing_1_s))
        limit_s = float(terms.limit_s[partition])
        whole = struck.capped(limit_s)
        delay_s = predictor.shape.requeue_delay_s
        set_up_s = float(forecast.stage_s[at] + forecast.start_s[at])
        work_s, save_s = float(forecast.work_s[at]), float(forecast.checkpoint_s[at])
        if not predictor.job.request.resumable:
            run_s = set_up_s + work_s
            ended_s = anew_s(struck, run_s, delay_s=delay_s) if run_s <= limit_s else math.inf
            alive = float(struck.survival(run_s))
            waited_s = delay_s * (1.0 - alive) / max(alive, 1e-300)
            return _expected(float(forecast.interval_s[at]), 0.0, ended_s, waited_s)
        restart_s = set_up_s + save_s
        notice = 0.0
        if terms.notice[partition]:
            notice = noticed_share(whole, failing_1_s)
        costs = {"checkpoint_s": save_s, "restart_s": restart_s, "notice": notice}
        if exact:
            interval_s = best_interval_s(whole, delay_s=delay_s, cap_notice=1.0, **costs)
        else:
            interval_s = first_order_interval_s(struck, **costs)
        ended_s = math.inf
        if restart_s < limit_s:
            ended_s = makespan_s(
                whole,
                work_s,
                interval_s,
                delay_s=delay_s,
                cap_notice=1.0,
                most_blocks=BLOCKS,
                **costs,
            )
        saves = math.floor(work_s / interval_s) + 1.0
        lost_s = max(ended_s - set_up_s - work_s - saves * save_s, 0.0)
        again_s = delay_s + restart_s + (1.0 - notice) * interval_s / 2.0
        return _expected(interval_s, saves, ended_s, delay_s * lost_s / max(again_s, 1e-300))


def noticed_share(law: Lifetime, failing_1_s: float) -> float:
    """Of interruptions before the cap, those that are no failing node: each of these strikes
    at `failing_1_s` for as long as the allocation lives."""
    reached = 0.0
    if math.isfinite(law.cap_s):
        reached = float(law.survival(math.nextafter(law.cap_s, 0.0)))
    if reached >= 1.0 or failing_1_s <= 0.0:
        return 1.0
    return max(1.0 - failing_1_s * law.mean_s / (1.0 - reached), 0.0)


def _expected(
    interval_s: float, checkpoints: float, ended_s: float, waited_s: float
) -> _Expected:
    held_s = ended_s - waited_s if math.isfinite(ended_s) else math.inf
    return _Expected(
        interval_s=interval_s, checkpoints=checkpoints, ended_s=ended_s, held_s=held_s
    )
