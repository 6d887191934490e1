"""Predictions: what plans take, many at once, from the closed forms.

A candidate is a partition, a number of servers (0: all-reduce) and a number of nodes. One
call predicts an array of candidates, or, given a range of node counts for each, a bound
from below on all counts of the range. The bound rests on how the forms grow with nodes
(sbtrain_perf.models says how): the step is taken at the end of the range where it is
shortest, everything else where it is cheapest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.coefficients import Base
from sbtrain_perf.intervals import Deviations
from sbtrain_perf.job import Job
from sbtrain_perf.models.allreduce import hops, step_s, transfers
from sbtrain_perf.models.checkpoint import interval_s
from sbtrain_perf.models.lifetime_table import LifetimeTable
from sbtrain_perf.models.parameter_server import update_s
from sbtrain_perf.models.preemption import restarted_s, resumed_s
from sbtrain_perf.models.staging import pipelined_s, shared_read_s
from sbtrain_perf.models.startup import start_s
from sbtrain_perf.placement import most_workers, workers
from sbtrain_perf.request import ClusterShape, Prediction
from sbtrain_perf.terms import Terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]


# Poisson events that lose a time uniform between 0 and 2 m: variance 4/3 m^2 each, at most.
_UNIFORM = 4.0 / 3.0
_FOR_EVER_S = 1e18  # longer than the universe is old: never


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Arrays of one length. low == high, but for bounds."""

    partition: Integers  # index into the terms
    servers: Integers
    low: Integers  # nodes
    high: Integers

    def __len__(self) -> int:
        return len(self.partition)

    @classmethod
    def single(cls, partition: int, *, nodes: int, servers: int) -> Candidates:
        return cls(
            partition=np.array([partition]),
            servers=np.array([servers]),
            low=np.array([nodes]),
            high=np.array([nodes]),
        )

    def key(self, at: int) -> tuple[int, int, int]:
        """Partition index, servers and (fewest) nodes of one candidate."""
        return int(self.partition[at]), int(self.servers[at]), int(self.low[at])

    def joined(self, other: Candidates) -> Candidates:
        return Candidates(
            partition=np.concatenate((self.partition, other.partition)),
            servers=np.concatenate((self.servers, other.servers)),
            low=np.concatenate((self.low, other.low)),
            high=np.concatenate((self.high, other.high)),
        )

    def first_rows(self) -> Candidates:
        """The fewest nodes of each range."""
        return Candidates(
            partition=self.partition, servers=self.servers, low=self.low, high=self.low
        )

    def take(self, which: Integers | NDArray[np.bool_]) -> Candidates:
        """The candidates that an index array or a mask chooses."""
        return Candidates(
            partition=self.partition[which],
            servers=self.servers[which],
            low=self.low[which],
            high=self.high[which],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """One element a candidate; infinite total_s where a candidate would never end.

    work_s: all steps. interval_s: between checkpoints. restarts: expected, of a run that
    resumes; more than the site allows never end.
    """

    restarts: Floats
    queue_s: Floats
    stage_s: Floats
    start_s: Floats
    step_s: Floats
    steps: Floats
    work_s: Floats
    checkpoint_s: Floats
    checkpoints: Floats
    interval_s: Floats
    lost_s: Floats
    total_s: Floats
    node_hours: Floats
    cost: Floats

    def prediction(self, at: int, deviations: Deviations | None = None) -> Prediction:
        """Element `at` as a value, with intervals where deviations of the same candidates
        are given. Only for a candidate that ends."""
        parts = {
            "queue": self.queue_s[at],
            "stage": self.stage_s[at],
            "start": self.start_s[at],
            "step": self.work_s[at],
            "checkpoint": self.checkpoint_s[at] * self.checkpoints[at],
            "lost": self.lost_s[at],
        }
        prediction = Prediction(
            queue_s=float(self.queue_s[at]),
            stage_s=float(self.stage_s[at]),
            start_s=float(self.start_s[at]),
            step_s=float(self.step_s[at]),
            steps=int(self.steps[at]),
            checkpoint_s=float(self.checkpoint_s[at]),
            checkpoints=int(self.checkpoints[at]),
            lost_s=float(self.lost_s[at]),
            total_s=float(self.total_s[at]),
            cost=float(self.cost[at]),
            node_hours=float(self.node_hours[at]),
            dominant=max(parts, key=lambda name: float(parts[name])),
        )
        return prediction if deviations is None else deviations.within(prediction, at)


class Predictor:
    """Predicts candidates of one job on one cluster."""

    def __init__(self, job: Job, shape: ClusterShape, base: Base, terms: Terms) -> None:
        self.job = job
        self.shape = shape
        self.base = base
        self.terms = terms
        self._most_workers = most_workers(job)
        self.most_restarts = shape.max_requeues + 0.5  # expected

    def forecast(self, candidates: Candidates) -> Forecast:
        terms, at = self.terms, candidates.partition
        step = self._step_s(candidates)
        steps = self._steps(candidates)
        work = steps * step
        nodes = candidates.low.astype(np.float64)
        stage = self._stage_s(candidates, nodes)
        layout = (candidates.servers > 0).astype(np.intp)
        start = np.asarray(
            start_s(
                nodes, fixed_s=terms.start_fixed_s[layout], node_s=terms.start_node_s[layout]
            )
        )
        save = terms.checkpoint_s[at]
        failures = nodes / self.base.failure.node_mtbf_s.value
        hazard = failures + terms.preemption_1_s[at]
        unsaved = failures + terms.preemption_1_s[at] * (1.0 - terms.notice[at])
        interval = np.asarray(interval_s(save, unsaved))
        delay = self.shape.requeue_delay_s
        if self.job.request.resumable:
            saves = np.floor(work / interval) + 1.0
            run = stage + start + work + saves * save
            restart = delay + stage + start + save
            ended = np.asarray(
                resumed_s(run, lost_share=hazard * restart + unsaved * interval / 2.0)
            )
            useful = terms.limit_s[at] - stage - start - save
            expiries = _attempts(work + saves * save, useful) - 1.0
            ended = ended + expiries * restart
            restarts = ended * hazard + expiries
            ended = np.where(restarts <= self.most_restarts, ended, np.inf)
        else:
            saves = np.zeros(len(candidates))
            run = stage + start + work
            hazard = failures + self._struck(at, run) / run
            ended = np.asarray(restarted_s(run, hazard_1_s=hazard, restart_s=delay))
            ended = np.where(run <= terms.limit_s[at], ended, np.inf)
            restarts = np.expm1(np.minimum(hazard * run, 700.0))
        ends = ended < _FOR_EVER_S
        ended = np.where(ends, ended, np.inf)
        held = np.where(ends, ended - np.where(ends, restarts, 0.0) * delay, np.inf)
        node_hours = nodes * held / 3600.0
        price = terms.price[at]
        queue = terms.queue_s[at]
        return Forecast(
            restarts=restarts,
            queue_s=queue,
            stage_s=stage,
            start_s=start,
            step_s=step,
            steps=steps,
            work_s=work,
            checkpoint_s=save,
            checkpoints=saves,
            interval_s=interval,
            lost_s=ended - run,
            total_s=queue + ended,
            node_hours=node_hours,
            cost=np.where(price > 0.0, node_hours, 0.0) * price,
        )

    def _struck(self, at: Integers, run_s: Floats) -> Floats:
        """Expected preemptions within a run that goes on regardless: the summed hazard."""
        if not any(self.terms.lifetimes):
            return np.asarray(self.terms.preemption_1_s[at] * run_s)
        return self._laws.rows(at).struck(run_s)

    @cached_property
    def _laws(self) -> LifetimeTable:
        """Of all partitions; one hazard where no law was learnt."""
        known = list(zip(self.terms.lifetimes, self.terms.preemption_1_s.tolist(), strict=True))
        return LifetimeTable.of(
            [law.edges_s if law else () for law, _ in known],
            [law.hazards_1_s if law else (hazard,) for law, hazard in known],
        )

    def lost_sd_s(self, candidates: Candidates, forecast: Forecast) -> Floats:
        """Standard deviation of lost_s of rows that end; meaningless for ranges of nodes.

        Resumed: interruptions come as a Poisson process, each loses a restart and what was
        not saved. Anew: the number of attempts is geometric.
        """
        terms, at = self.terms, candidates.partition
        ended = forecast.total_s - forecast.queue_s
        failures = candidates.low / self.base.failure.node_mtbf_s.value
        hazard = failures + terms.preemption_1_s[at]
        if self.job.request.resumable:
            unsaved = failures + terms.preemption_1_s[at] * (1.0 - terms.notice[at])
            each = self.shape.requeue_delay_s + forecast.stage_s + forecast.start_s
            each = each + forecast.checkpoint_s + unsaved / hazard * forecast.interval_s / 2.0
            return np.asarray(np.sqrt(_UNIFORM * ended * hazard) * each)
        ends = np.isfinite(ended)
        lost = np.where(ends, forecast.lost_s, 0.0)
        run = np.where(ends, ended, 0.0) - lost
        restarts = np.expm1(np.minimum(hazard * run, 700.0))
        return np.asarray(lost * np.sqrt(1.0 + 1.0 / np.maximum(restarts, 1e-30)))

    def workers(self, candidates: Candidates, nodes: Integers | Floats) -> Floats:
        """Trainers of each candidate, on so many nodes in all."""
        per_node = self.terms.per_node[candidates.partition]
        training = np.asarray(nodes - candidates.servers, dtype=np.float64)
        return np.asarray(workers(training, per_node=per_node, most=self._most_workers))

    def _step_s(self, candidates: Candidates) -> Floats:
        """From one step to the next, where it is shortest in each range."""
        terms, server = self.terms, self.base.server
        out = np.empty(len(candidates))
        ring = candidates.servers == 0
        at = candidates.partition[ring]
        out[ring] = step_s(
            terms.compute_s[0, at],
            terms.transfer_s[at],
            terms.hop_s[at],
            nodes=candidates.low[ring].astype(np.float64),
            loads=(terms.link_loads[0, at], terms.link_loads[1, at]),
            sharpness=self.base.allreduce.sharpness.value,
        )
        served = ~ring
        at, servers = candidates.partition[served], candidates.servers[served]
        out[served] = update_s(
            terms.compute_s[1, at],
            terms.server_s[at],
            workers=self.workers(candidates, candidates.high)[served],
            share=terms.server_share[servers],
            sharpness=server.sharpness.value,
        )
        return out * terms.own.factors(
            partition=candidates.partition,
            servers=candidates.servers,
            low=candidates.low,
            high=candidates.high,
        )

    def step_shares(self, candidates: Candidates, nodes: Floats) -> Floats:
        """(3, candidates): how the logarithm of a step on so many nodes follows those of its
        terms: compute, transfer, hop (all-reduce); compute, one server's time, nothing."""
        terms, server = self.terms, self.base.server
        power = self.base.allreduce.sharpness.value
        out = np.zeros((3, len(candidates)))
        ring = np.flatnonzero(candidates.servers == 0)
        at, on = candidates.partition[ring], nodes[ring]
        parts = np.stack(
            (
                terms.compute_s[0, at],
                transfers(on, loads=(terms.link_loads[0, at], terms.link_loads[1, at]))
                * terms.transfer_s[at],
                hops(on) * terms.hop_s[at],
            )
        )
        parts = (parts / np.maximum(parts.max(axis=0), 1e-300)) ** power
        out[:, ring] = parts / np.maximum(parts.sum(axis=0), 1e-300)
        served = np.flatnonzero(candidates.servers > 0)
        at, servers = candidates.partition[served], candidates.servers[served]
        workers_s = terms.compute_s[1, at] / self.workers(candidates, nodes)[served]
        servers_s = np.maximum(terms.server_s[at], 1e-300) * terms.server_share[servers]
        share = 1.0 / (1.0 + np.minimum(servers_s / workers_s, 1e30) ** server.sharpness.value)
        out[0, served], out[1, served] = share, 1.0 - share
        return out

    def _steps(self, candidates: Candidates) -> Floats:
        """Of each synchronous replica (all-reduce), or updates of the servers."""
        if self.job.steps:
            return np.full(len(candidates), float(self.job.steps))
        workers = self.workers(candidates, candidates.high)
        replicas = np.where(candidates.servers == 0, workers, 1.0)
        return np.ceil(self.job.samples / (replicas * float(self.job.request.batch_per_worker)))

    def _stage_s(self, candidates: Candidates, nodes: Floats) -> Floats:
        terms, at = self.terms, candidates.partition
        size = float(self.job.request.data.total_bytes)
        rate = terms.stage_bytes_s[at]
        local = pipelined_s(
            size,
            nodes=nodes,
            rate_bytes_s=np.where(rate > 0.0, rate, 1.0),
            link_bytes_s=terms.link_bytes_s[at],
            chunk_bytes=self.base.stage.chunk_bytes.value,
            overhead_s=terms.stage_overhead_s[at],
        )
        shared = shared_read_s(
            size,
            nodes=nodes,
            client_bytes_s=self.shape.shared_client_bytes_s,
            shared_bytes_s=self.shape.shared_bytes_s,
        )
        return np.where(rate > 0.0, local, shared)


def _attempts(work_s: Floats, attempt_s: Floats) -> Floats:
    """How many time limits long the work is; infinite where an attempt leaves no time."""
    useful = attempt_s > 0.0
    attempts = np.ceil(work_s / np.where(useful, attempt_s, 1.0))
    return np.where(useful, np.maximum(attempts, 1.0), np.inf)
