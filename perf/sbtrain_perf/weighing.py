"""What each candidate of one request on one cluster is worth, and which are best."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.alike import Alike
from sbtrain_perf.by_law import LawForecasts
from sbtrain_perf.coefficients import Coefficients
from sbtrain_perf.errors import PlanError
from sbtrain_perf.intervals import FARTHEST, Deviations, normal_quantile
from sbtrain_perf.job import job_of
from sbtrain_perf.limit_risk import kept_share, run_again
from sbtrain_perf.near_tie import FREE, nearly_fastest, traded, worth
from sbtrain_perf.predict import Candidates, Forecast, Predictor
from sbtrain_perf.request import ClusterShape, Request
from sbtrain_perf.room import Room
from sbtrain_perf.search import best_of_groups, count_rows, expand
from sbtrain_perf.spreads import Side, Spreads
from sbtrain_perf.terms import PartitionTerms, terms_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

HAIR = 1e-9  # of the dearest price: what tells rows of the same cost apart
FEW_BY_LAW = 400  # as many candidates are all worked out by whole laws of lifetimes


class Weighing:
    """What fits a request, what it takes, what is best.

    Attributes:
        fit: partitions that may do; candidates index into it.
        lanes: one range of node counts for each partition and number of servers that fit.
        refused: what does not fit.
        priced: whether any partition that fits has a price.
    """

    def __init__(
        self,
        request: Request,
        shape: ClusterShape,
        coefficients: Coefficients,
        queue_waits: Mapping[str, float],
        aside: Mapping[str, str] | None = None,
    ) -> None:
        """aside: partitions that are not to be taken, with the reason."""
        self.request = request
        self.objective = request.objective
        if self.objective.kind == "deadline" and not self.objective.deadline_s:
            raise PlanError(
                "a deadline without a time cannot be kept",
                hint="--train-objective deadline:6h",
            )
        if not 0.5 <= self.objective.sure <= 0.999:
            raise PlanError(
                f"a deadline cannot be kept with a probability of {self.objective.sure:.4g}",
                hint="ask for 50 % to 99.9 %: --train-objective deadline:6h@95%",
            )
        self.base = coefficients.base
        self.job = job_of(request, coefficients)
        room = Room(shape.partitions, self.job, self.base, aside=aside or {})
        self.fit, self.lanes, self.refused = room.fit, room.lanes, room.refused
        self.refusal = room.refusal
        self.finder = PartitionTerms(shape, self.job, coefficients)
        self.terms = terms_of(self.fit, self.finder, queue_waits)
        self.predictor = Predictor(self.job, shape, self.base, self.terms)
        self._by_law = LawForecasts(self.predictor)
        prices = [p.price_per_node_hour for p in self.fit if p.price_per_node_hour > 0]
        self._dearest = max(prices, default=0.0)
        self._free = FREE * min(prices) if prices else 1.0
        self.priced = self._dearest > 0
        self._alike = Alike(
            self.fit, queue_waits=queue_waits, known=self.finder.learnt_partitions()
        )
        self._searched = self._alike.searched(self.lanes)

    @cached_property
    def spreads(self) -> Spreads:
        return Spreads(self.fit, self.finder, self.predictor)

    def values(self, forecast: Forecast) -> Floats:
        """What the objective minimises; infinite where a row will not do. A deadline must
        also be kept with some probability: keeps_deadline. Of rows that cost the same, the
        better trade of time and node-hours has the lesser value, by a hair."""
        if self.objective.kind == "time":
            return forecast.total_s
        if self.objective.kind == "balanced":
            paid = np.where(forecast.cost > 0, forecast.cost, forecast.node_hours * self._free)
            return worth(forecast.total_s, paid)
        # No row is surer than half to keep a deadline that its prediction misses.
        will_do = np.isfinite(forecast.total_s) & (forecast.total_s <= self.deadline_s)
        if not self.priced or self.objective.kind == "node-hours":
            return np.where(will_do, forecast.node_hours, np.inf)
        with np.errstate(invalid="ignore"):
            trade = np.sqrt(forecast.total_s / 3600.0 * forecast.node_hours)
            value = forecast.cost + HAIR * self._dearest * trade
        return np.where(will_do, value, np.inf)

    def forecast(self, candidates: Candidates) -> Forecast:
        """By which rows are chosen: with what the time limit may cost a run that does not
        resume. Of ranges a bound from below."""
        return self._at_risk(candidates, self.predictor.forecast(candidates))

    def _at_risk(self, candidates: Candidates, forecast: Forecast) -> Forecast:
        if self.request.resumable:
            return forecast
        at, nodes = candidates.partition, candidates.low.astype(np.float64)
        limit_s, price = self.terms.limit_s[at], self.terms.price[at]
        kept = self.kept(candidates, forecast)
        return run_again(forecast, kept, limit_s, nodes=nodes, price=price)

    def kept(self, candidates: Candidates, forecast: Forecast) -> Floats:
        """Probability that the time limit does not end a run that cannot resume; 1 for ranges,
        and where there is no limit or the run resumes."""
        limit_s = self.terms.limit_s[candidates.partition]
        single = (candidates.low == candidates.high) & np.isfinite(limit_s)
        if self.request.resumable or not single.any():
            return np.ones(len(candidates))
        deviations = self.spreads.deviations(candidates, forecast)
        return np.where(single, kept_share(deviations, limit_s), 1.0)

    def keeps_deadline(self, candidates: Candidates) -> NDArray[np.bool_]:
        """Which rows are sure enough to keep it; which ranges may hold such a row."""
        in_time = self.total_s(candidates, z=self._sure_z) <= self.deadline_s
        if self.request.resumable:
            return in_time
        kept = self.kept(candidates, self.predictor.forecast(candidates))
        return np.asarray(in_time & (kept >= self.objective.sure))

    def odds(self, rows: Candidates) -> Floats:
        """Probability that rows keep the deadline, and end before the time limit."""
        return np.minimum(
            self.deviations(rows).odds(self.deadline_s),
            self.kept(rows, self.predictor.forecast(rows)),
        )

    @property
    def deadline_s(self) -> float:
        """Infinite where the objective is another."""
        return self.objective.deadline_s or math.inf

    @cached_property
    def _sure_z(self) -> float:
        return normal_quantile(self.objective.sure)

    def best(self, *, most: int) -> Candidates:
        """The row to take, then the best row of each of the best (partition, layout) pairs,
        best first. The first may be a nearly fastest one that is cheaper."""
        rows = self._least(
            lambda c: self.values(self.forecast(c)),
            most=most,
            may_do=self.keeps_deadline if self.objective.kind == "deadline" else None,
        )
        if self.objective.kind == "time" and len(rows):
            rows = self._nearly_fastest(rows.take(np.array([0]))).joined(rows)
        if not any(self.terms.lifetimes):
            return _once(rows)
        return self._best_by_law(rows, most=most)

    def prices(self, forecast: Forecast) -> Floats:
        """What a row's time is paid with: money, or node-hours where nothing has a price."""
        return forecast.cost if self.priced else forecast.node_hours

    def _nearly_fastest(self, fastest: Candidates) -> Candidates:
        """The best trade of all rows nearly as fast as the fastest: sbtrain_perf.near_tie."""
        least_s = float(self.forecast(fastest).total_s[0])

        def value(candidates: Candidates) -> Floats:
            forecast = self.forecast(candidates)
            return traded(forecast.total_s, self.prices(forecast), least_s=least_s)

        groups = np.zeros(len(self._searched), dtype=np.int64)
        return best_of_groups(self._searched, groups, value, most=1)[0]

    def _best_by_law(self, rows: Candidates, *, most: int) -> Candidates:
        """The best rows anew, by whole laws; of all candidates where they are few."""
        if count_rows(self.lanes) <= FEW_BY_LAW:
            rows = expand(self.lanes)[0]
        forecast = self._at_risk(rows, self.by_law(rows))
        value = self._sure_values(rows, forecast)
        order = np.lexsort((rows.servers, rows.partition, rows.low, value))
        order = order[np.isfinite(value[order])]
        pairs = 2 * rows.partition[order] + (rows.servers[order] > 0)
        _, first = np.unique(pairs, return_index=True)
        chosen = rows.take(order[np.sort(first)][:most])
        if self.objective.kind == "time" and len(chosen):
            near = nearly_fastest(forecast.total_s, self.prices(forecast), rows.low)
            chosen = _once(rows.take(np.array([near])).joined(chosen))
        return chosen

    def _sure_values(self, rows: Candidates, forecast: Forecast) -> Floats:
        """As values; infinite also where a row is not sure enough to keep the deadline."""
        value = self.values(forecast)
        if self.objective.kind != "deadline":
            return value
        late = self.deviations(rows).total_s(self._sure_z) > self.deadline_s
        kept = self.kept(rows, self.predictor.forecast(rows))
        return np.where(late | (kept < self.objective.sure), np.inf, value)

    def likeliest(self, *, most: int) -> Candidates:
        """As best, by the probability to keep the deadline.

        A row's probability grows with the normal quantile z at which its total meets the
        deadline. Search the least total at a z; at that row's own z, search again: from
        then on z rises, to the largest of all rows.
        """
        z, rising = 0.0, False
        while True:
            rows = self._least(partial(self.total_s, z=z), most=most)
            if not len(rows):
                return rows
            first = rows.take(np.array([0]))
            own = self.deviations(first).quantile(self.deadline_s)
            if own[0] >= FARTHEST - 1e-6 or (rising and own[0] <= z + 1e-6):
                return rows
            z, rising = float(own[0]), True

    def total_s(self, candidates: Candidates, *, z: float) -> Floats:
        """At a normal quantile; of a range, no more than that of any row in it."""
        forecast = self.predictor.forecast(candidates)
        if not z:
            return forecast.total_s
        side: Side = "above" if z > 0 else "below"
        return self.spreads.deviations(candidates, forecast, side=side).total_s(z)

    def deviations(self, rows: Candidates) -> Deviations:
        return self.spreads.deviations(rows, self.by_law(rows))

    def by_law(self, rows: Candidates, *, best: int | None = None) -> Forecast:
        """Of single rows that are shown: by whole laws of lifetimes where those were learnt.

        best: index of the chosen row, whose checkpoint interval is then searched for.
        """
        return self._by_law.forecast(rows, self.predictor.forecast(rows), best=best)

    def _least(
        self,
        value: Callable[[Candidates], Floats],
        *,
        most: int,
        may_do: Callable[[Candidates], NDArray[np.bool_]] | None = None,
    ) -> Candidates:
        lanes = self._searched
        groups = 2 * lanes.partition + (lanes.servers > 0)
        rows, values = best_of_groups(lanes, groups, value, most=most, may_do=may_do)
        return self._alike.all_of(rows, values, most=most)

    def fastest(self) -> Candidates:
        """The row that ends first, whatever the objective; none where no row ends."""
        groups = np.zeros(len(self._searched), dtype=np.int64)
        rows, _ = best_of_groups(
            self._searched, groups, lambda c: self.predictor.forecast(c).total_s, most=1
        )
        return rows

    def neighbours(self, row: Candidates) -> Candidates:
        """Of a single row: with some more and some fewer nodes, to show how it lies."""
        nodes = int(row.low[0])
        lane = (self.lanes.partition == row.partition[0]) & (
            self.lanes.servers == row.servers[0]
        )
        low, high = int(self.lanes.low[lane].min()), int(self.lanes.high[lane].max())
        others = {nodes // 2, nodes - 1, nodes, nodes + 1, nodes * 2}
        counts = np.array(sorted(n for n in others if low <= n <= high), dtype=np.int64)
        return Candidates(
            partition=np.full(len(counts), row.partition[0]),
            servers=np.full(len(counts), row.servers[0]),
            low=counts,
            high=counts,
        )

    def in_order(self, candidates: Candidates) -> Candidates:
        """The candidates best first, equal ones once."""
        forecast = self._at_risk(candidates, self.by_law(candidates))
        value = self._sure_values(candidates, forecast)
        order = np.lexsort(
            (
                candidates.servers,
                candidates.partition,
                candidates.low,
                forecast.total_s,
                value,
            )
        )
        ordered = candidates.take(order)
        return _once(ordered)

    def saturation(self, candidates: Candidates) -> Floats:
        """Workers past which a row's servers set the pace; infinite for all-reduce."""
        at, servers = candidates.partition, candidates.servers
        busy_s = self.terms.server_s[at] * self.terms.server_share[servers]
        ps_step_s = self.terms.compute_s[1, at]
        limit = ps_step_s / np.where(busy_s > 0.0, busy_s, 1.0)
        return np.where((servers > 0) & (busy_s > 0.0), limit, np.inf)

    def saturated_at(self, partition: str, servers: int) -> float:
        """Workers at which so many servers set the pace on a partition that fits."""
        at = next(i for i, p in enumerate(self.fit) if p.name == partition)
        return float(
            self.saturation(Candidates.single(at, nodes=servers + 1, servers=servers))[0]
        )

    def communication_share(self, partition: str, nodes: int) -> float:
        """Of an all-reduce step on a partition that fits, what computing does not hide."""
        at = next(i for i, p in enumerate(self.fit) if p.name == partition)
        one = Candidates.single(at, nodes=nodes, servers=0)
        shares = self.predictor.step_shares(one, np.array([float(nodes)]))
        power = self.base.allreduce.sharpness.value
        return 1.0 - math.pow(float(shares[0, 0]), 1.0 / power)


def _once(rows: Candidates) -> Candidates:
    """Each row where it first stands."""
    keys = np.stack((rows.partition, rows.servers, rows.low))
    _, first = np.unique(keys, axis=1, return_index=True)
    return rows.take(np.sort(first))
