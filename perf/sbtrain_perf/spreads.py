"""How far off each part of each candidate may be, from what was learnt and what was not.

A step is a sum of terms; the variance of its logarithm is ``w' C w + noise^2 + beyond^2``,
with w each term's share, C the covariance of the terms' logarithms (from the refit, or the
shipped spreads on its diagonal), noise how runs of one plan differ, and beyond what is added
per doubling of the nodes past the measured ones. Terms that no run has told apart keep their
shipped spread in C, so that a step on other node counts is as uncertain as they make it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from sbtrain_perf.coefficients import Learnt, LearntSpread, LearntStep, SpreadTerms
from sbtrain_perf.intervals import Deviations
from sbtrain_perf.placement import batch_per_node, workers_per_node
from sbtrain_perf.predict import Candidates, Forecast, Predictor
from sbtrain_perf.request import Layout, Partition
from sbtrain_perf.terms import PartitionTerms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Side = Literal["below", "above"]

_LAYOUTS: tuple[Layout, ...] = ("allreduce", "ps")
_TERMS = 3  # of a step: compute, transfer, hop; or compute, server
_LEAST_SD = 1e-6
_ASSUMED_SD = (
    1.0  # of a rate or a GPU's speed that nothing states: a factor of 5 at 90 % (ours)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpread:
    """Of one partition and layout. covariance: (terms, terms) of the logarithms; fewest and
    most: nodes that were measured, all where none was."""

    covariance: Floats
    noise_sd: float
    fewest: float = 1.0
    most: float = math.inf


class Spreads:
    """Finds how far off predictions may be. What is alike of many partitions is found once."""

    def __init__(
        self, partitions: Sequence[Partition], finder: PartitionTerms, predictor: Predictor
    ) -> None:
        self._finder = finder
        self._predictor = predictor
        self._own: SpreadTerms = finder.coefficients.base.spread
        self._kinds: dict[object, int] = {}
        self._steps: list[StepSpread] = []
        # Unlearnt, all partitions are alike of which as much is stated.
        alike = (
            finder.coefficients.learnt == Learnt() and len(set(map(_unstated, partitions))) < 2
        )
        told = partitions[:1] if alike else partitions
        kinds = [[self._kind_of(p, layout) for p in told] for layout in _LAYOUTS]
        many = (len(_LAYOUTS), len(partitions))
        self._kind = np.broadcast_to(np.array(kinds, dtype=np.int64), many)
        self._covariance = np.stack([s.covariance for s in self._steps] or [np.zeros((3, 3))])
        self._least = np.array([_least_sd(s.covariance) for s in self._steps])
        self._term_sds = np.sqrt(np.diagonal(self._covariance, axis1=1, axis2=2))
        self._largest = self._term_sds.max(axis=1)
        self._noise = np.array([s.noise_sd for s in self._steps])
        self._fewest = np.array([s.fewest for s in self._steps])
        self._most = np.array([s.most for s in self._steps])
        self._stage = np.broadcast_to([self._stage_sd(p) for p in told], len(partitions))
        self._save = self._save_sd()
        self._hazard_sd = np.array([self._rate_sd(p) for p in partitions])

    def deviations(
        self, candidates: Candidates, forecast: Forecast, *, side: Side | None = None
    ) -> Deviations:
        """Of forecast candidates.

        Args:
            side: for ranges of nodes: of every row in the range the least total above
                (below) its prediction is bounded from below. None: rows, not ranges.
        """
        sds = np.empty((5, len(candidates)))
        sds[0] = self._own.queue.value
        at = candidates.partition
        sds[1], sds[4] = self._stage[at], self._save
        sds[2] = self._start_sd(candidates, side)
        sds[3] = self._step_sd(candidates, side)
        lost_sd = np.hypot(
            self._predictor.lost_sd_s(candidates, forecast),
            self._hazard_sd[at] * forecast.lost_s,
        )
        wide = candidates.low < candidates.high
        if side == "above":
            lost_sd = np.where(wide, 0.0, lost_sd)
        elif side == "below":
            lost_sd = np.where(wide, np.inf, lost_sd)
        parts = (
            forecast.queue_s,
            forecast.stage_s,
            forecast.start_s,
            forecast.work_s,
            forecast.checkpoint_s * forecast.checkpoints,
        )
        return Deviations(
            parts_s=np.stack([np.broadcast_to(part, len(candidates)) for part in parts]),
            log_sd=sds,
            lost_s=forecast.lost_s,
            lost_sd_s=lost_sd,
        )

    def _kind_of(self, partition: Partition, layout: Layout) -> int:
        learnt = self._finder.learnt_step(partition, layout)
        own = learnt is not None and learnt.partition == partition.name
        each = workers_per_node(self._finder.job, partition)
        key = (id(learnt), own, layout, each, _unstated(partition))
        if key not in self._kinds:
            self._kinds[key] = len(self._steps)
            self._steps.append(self._find_step(partition, learnt, layout, own=own))
        return self._kinds[key]

    def _find_step(
        self, partition: Partition, learnt: LearntStep | None, layout: Layout, *, own: bool
    ) -> StepSpread:
        """own: learnt on the very partition."""
        spread, job = self._own, self._finder.job
        gpu_sd, link_sd = (_ASSUMED_SD * unstated for unstated in _unstated(partition)[:2])
        computes_sd = math.hypot(spread.compute.value, gpu_sd)
        transfers_sd = math.hypot(spread.transfer.value, link_sd)
        cold = np.array((computes_sd, transfers_sd, spread.hop.value))
        if layout == "ps":
            cold = np.array((computes_sd, math.hypot(spread.server.value, link_sd), 0.0))
        covariance = np.diag(cold**2)
        if not job.parameters_known:
            covariance += np.outer(cold > 0, cold > 0) * spread.unknown_model.value**2
        if learnt is None:
            return StepSpread(covariance=covariance, noise_sd=spread.run.value)
        noise_sd = learnt.spread.noise_sd or spread.run.value
        known = _covariance(learnt.spread, spread.run.value)
        carried = spread.carried.value**2
        batches = learnt.batch_per_node / batch_per_node(job, partition)
        known[0, 0] += carried * math.log(batches) ** 2
        if not own:
            known[0, 0] += carried + gpu_sd**2
            known[1, 1] += carried + link_sd**2
        if learnt.layout != layout:
            covariance[0, :] = covariance[:, 0] = 0.0
            covariance[0, 0] = known[0, 0] + carried
            return StepSpread(covariance=covariance, noise_sd=noise_sd)
        return StepSpread(
            covariance=known,
            noise_sd=noise_sd,
            fewest=float(min(learnt.nodes, default=1)),
            most=float(max(learnt.nodes, default=1)),
        )

    def _step_sd(self, candidates: Candidates, side: Side | None) -> Floats:
        low, high = candidates.low.astype(np.float64), candidates.high.astype(np.float64)
        kind = self._kind[(candidates.servers > 0).astype(int), candidates.partition]
        sd = self._terms_sd(candidates, kind, side)
        fewest, most = self._fewest[kind], self._most[kind]
        if side == "below":
            low, high = high, low
        beyond = np.maximum(np.log2(np.maximum(fewest / high, low / most)), 0.0)
        beyond *= self._own.doubling.value
        return np.asarray(np.sqrt(sd**2 + self._noise[kind] ** 2 + beyond**2))

    def _terms_sd(
        self, candidates: Candidates, kind: NDArray[np.int64], side: Side | None
    ) -> Floats:
        """`sqrt(w' C w)`; of a range, what it is at its low end less (below: and) what the
        shares may change by: all are monotone but the transfer's, and they sum to 1."""
        low = candidates.low.astype(np.float64)
        shares = self._predictor.step_shares(candidates, low)
        variance = np.zeros(len(low))
        for one in range(_TERMS):
            for other in range(one + 1):
                factor = self._covariance[:, one, other] * (1.0 if one == other else 2.0)
                if factor.any():
                    variance += factor[kind] * shares[one] * shares[other]
        sd = np.sqrt(np.maximum(variance, 0.0))
        wide = np.flatnonzero(candidates.low < candidates.high)
        if side is None or not len(wide):
            return np.asarray(sd)
        ranges, kinds = candidates.take(wide), kind[wide]
        ends = self._predictor.step_shares(ranges, ranges.high.astype(np.float64))
        moved = np.abs(ends - shares[:, wide])
        moved[1] = moved[0] + moved[2]
        reach = sum(moved[term] * self._term_sds[kinds, term] for term in range(_TERMS))
        if side == "above":
            sd[wide] = np.maximum(sd[wide] - reach, self._least[kinds])
        else:
            sd[wide] = np.minimum(sd[wide] + reach, self._largest[kinds])
        return np.asarray(sd)

    def _start_sd(self, candidates: Candidates, side: Side | None) -> Floats:
        terms, served = self._predictor.terms, candidates.servers > 0
        out = np.empty(len(candidates))
        for at, layout in enumerate(_LAYOUTS):
            rows = served == bool(at)
            fixed_s, node_s = float(terms.start_fixed_s[at]), float(terms.start_node_s[at])
            nodes = candidates.low[rows].astype(np.float64)
            wide = candidates.low[rows] < candidates.high[rows]
            out[rows] = self._start_sd_of(layout, (fixed_s, node_s), nodes, wide, side)
        return out

    def _start_sd_of(
        self,
        layout: Layout,
        terms_s: tuple[float, float],
        nodes: Floats,
        wide: NDArray[np.bool_],
        side: Side | None,
    ) -> Floats:
        own = self._own
        learnt = self._finder.learnt_start(layout)
        if learnt is None:
            return np.full(len(nodes), math.hypot(own.start.value, own.run.value))
        covariance = _covariance(learnt.spread, own.run.value)[:2, :2]
        if learnt.layout not in (None, layout):  # both terms are off alike
            covariance = covariance + own.start.value**2 / 2.0
        noise = learnt.spread.noise_sd or own.run.value
        parts = np.stack((np.full(len(nodes), terms_s[0]), terms_s[1] * nodes))
        shares = parts / np.maximum(parts.sum(axis=0), 1e-300)
        variance = np.einsum("ji,jk,ki->i", shares, covariance, shares)
        if side == "above":
            variance = np.where(wide, 0.0, variance)
        elif side == "below":
            variance = np.where(wide, float(np.diag(covariance).max()), variance)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0) + noise**2))

    def _stage_sd(self, partition: Partition) -> float:
        own, size = self._own, float(self._finder.job.request.data.total_bytes)
        learnt = self._finder.learnt_stage(partition)
        rate = self._finder.basis(partition).stage_bytes_s
        if learnt is None or learnt.partition != partition.name or rate <= 0.0:
            rate_sd = _ASSUMED_SD * (
                _unstated(partition)[2] or bool(self._finder.shape.assumed)
            )
            return math.hypot(own.stage.value, own.run.value, rate_sd)
        return _sum_sd(learnt.spread, (learnt.overhead_s, size / learnt.rate_bytes_s), own)

    def _rate_sd(self, partition: Partition) -> float:
        """Of the logarithm of how often a partition interrupts: as a gamma law's, of the
        shipped spread before and counts of interruptions since."""
        own_sd = self._own.hazard.value
        learnt = self._finder.learnt_lifetime(partition)
        return own_sd if learnt is None else 1.0 / math.sqrt(own_sd**-2 + learnt.ended)

    def _save_sd(self) -> float:
        own, size = self._own, self._finder.job.checkpoint_bytes
        learnt = self._finder.learnt_checkpoint()
        if learnt is None:
            rate_sd = _ASSUMED_SD * ("shared_client_bytes_s" in self._finder.shape.assumed)
            return math.hypot(own.checkpoint.value, own.run.value, rate_sd)
        return _sum_sd(learnt.spread, (learnt.fixed_s, learnt.byte_s * size), own)


def _unstated(partition: Partition) -> tuple[bool, bool, bool]:
    """Whether its GPU's speed, its link and the rate of its scratch are assumed."""
    gpus = [partition.gpu, *(group.gpu for group in partition.mix)]
    return (
        any(gpu is not None and not gpu.known for gpu in gpus),
        "network_bytes_s" in partition.assumed,
        partition.scratch_path is not None and "scratch_bytes_s" in partition.assumed,
    )


def _covariance(spread: LearntSpread, run_sd: float) -> Floats:
    """(3, 3), terms that are not there 0. Where a file does not say: as a run differs."""
    out = np.zeros((_TERMS, _TERMS))
    terms = math.isqrt(len(spread.covariance))
    if not terms:
        return np.eye(_TERMS) * run_sd**2
    out[:terms, :terms] = np.array(spread.covariance).reshape(terms, terms)
    return out


def _sum_sd(spread: LearntSpread, parts: tuple[float, float], own: SpreadTerms) -> float:
    covariance = _covariance(spread, own.run.value)[:2, :2]
    shares = np.array(parts) / max(sum(parts), 1e-300)
    noise = spread.noise_sd or own.run.value
    return math.sqrt(max(float(shares @ covariance @ shares), 0.0) + noise**2)


def _least_sd(covariance: Floats) -> float:
    """The least that shares which sum to 1 can have; of terms without spread, 0."""
    used = np.diag(covariance) > 0.0
    if not used.all() and not (used[0] and used[1] and not used[2]):
        return 0.0
    inner = covariance[np.ix_(used, used)] + np.eye(int(used.sum())) * _LEAST_SD**2
    return math.sqrt(max(1.0 / float(np.linalg.solve(inner, np.ones(len(inner))).sum()), 0.0))
