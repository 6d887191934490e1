"""What the models need to know of each partition for one job, as arrays.

Job + ClusterShape + Coefficients -> Terms, one element a partition. What was learnt of the
workload stands in for the shipped coefficients where there is something: of the same
partition and layout as it is; else of another partition, by the ratio of what the models
say of the two; else of the other layout, the worker's own computing alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.coefficients import (
    Coefficients,
    LearntCheckpoint,
    LearntLifetime,
    LearntStage,
    LearntStart,
    LearntStep,
    OwnRuns,
    nearest_start,
    nearest_step,
)
from sbtrain_perf.gpu_figures import PUBLISHED_GPUS
from sbtrain_perf.job import Job
from sbtrain_perf.models.allreduce import link_loads, transfer_s
from sbtrain_perf.models.checkpoint import checkpoint_s
from sbtrain_perf.models.lifetime import Lifetime
from sbtrain_perf.models.lifetime_table import LifetimeTable
from sbtrain_perf.models.parameter_server import linked_byte_s, server_s, slow_link_s
from sbtrain_perf.models.preemption import equivalent_hazards_1_s
from sbtrain_perf.models.step_time import StepTerms, speed_ratio, step_s
from sbtrain_perf.own_runs import OwnRatios
from sbtrain_perf.placement import batch_per_node, workers_per_node
from sbtrain_perf.request import Basis, ClusterShape, Layout, Partition, warned_s
from sbtrain_perf.shards import MOST, server_shares

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# Until one of a type that nobody knows is measured (our choice: about the middle of what
# clusters hold; sbtrain_perf.spreads says how far off that may be).
_UNKNOWN_GPU = PUBLISHED_GPUS["V100"]
MEASURED_BATCH = 128  # of the runs that the shipped compute terms were fitted on


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """One element a partition. Rates in bytes/s; hazards in interruptions a second."""

    compute_s: Floats  # (2, partitions): all-reduce, parameter servers
    transfer_s: Floats
    hop_s: Floats
    server_s: Floats
    server_share: Floats  # by number of servers: what of server_s the busiest has
    stage_overhead_s: Floats
    stage_bytes_s: Floats  # 0: no scratch, data is read from the shared filesystem
    link_bytes_s: Floats
    start_fixed_s: Floats  # (2,): all-reduce, parameter servers
    start_node_s: Floats
    checkpoint_s: Floats
    preemption_1_s: Floats  # constant, or what costs a long run as much as the learnt law
    lifetimes: tuple[LearntLifetime | None, ...]
    notice: Floats  # 1 where a checkpoint fits between signal and kill
    limit_s: Floats  # of one attempt
    price: Floats
    queue_s: Floats
    link_loads: Floats  # (2, partitions): of all-reduce on two nodes, and on three
    per_node: Floats  # workers
    own: OwnRatios  # of steps, to the closed form


def basis_of(
    partition: Partition, shape: ClusterShape, job: Job, coefficients: Coefficients
) -> Basis:
    """What the unlearnt models say of the job's parts on one partition."""
    base = coefficients.base
    link = partition.network_bytes_s
    rates = (link, shape.shared_client_bytes_s, shape.shared_bytes_s, partition.scratch_bytes_s)
    return Basis(
        parameters=job.parameters,
        tensors=job.tensors,
        parameters_known=job.parameters_known,
        compute_s=_compute_s(partition, job, coefficients, batch_per_node(job, partition)),
        transfer_s=float(
            transfer_s(
                float(job.parameters),
                link_bytes_s=link,
                efficiency=base.allreduce.efficiency.value,
            )
        ),
        hop_s=base.allreduce.hop_s.value,
        server_s=float(
            server_s(
                float(job.parameters),
                float(job.tensors),
                tensor_s=base.server.tensor_s.value,
                parameter_byte_s=float(
                    linked_byte_s(base.server.parameter_byte_s.value, link_bytes_s=link)
                ),
            )
        ),
        stage_bytes_s=min(rates) if partition.scratch_path else 0.0,
        link_bytes_s=link,
        checkpoint_byte_s=base.checkpoint.byte_s.value + 1.0 / shape.shared_client_bytes_s,
        preemption_s=stated_preemption_s(partition, coefficients),
    )


def _compute_s(partition: Partition, job: Job, coefficients: Coefficients, batch: int) -> float:
    """batch: of a node, whose GPUs, or cores, share it."""
    compute = coefficients.base.compute
    if partition.gpu is not None and partition.gpus_per_node > 0:
        gpu = partition.gpu if partition.gpu.known else _UNKNOWN_GPU
        speed = partition.gpus_per_node * speed_ratio(gpu, PUBLISHED_GPUS["K80"])
    else:
        speed = partition.cores_per_node * compute.cpu_core_speed.value
    terms = StepTerms(
        fixed_s=compute.fixed_s.value,
        tensor_s=compute.tensor_s.value,
        activation_s=compute.activation_s.value / speed,
        parameter_s=compute.parameter_s.value / speed,
        batch=MEASURED_BATCH,
    )
    parameters, tensors = float(job.parameters), float(job.tensors)
    return float(step_s(parameters, tensors, batch=float(batch), terms=terms))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """The parameters of a step's closed form, in seconds; unused ones are 0."""

    compute_s: float
    transfer_s: float = 0.0
    hop_s: float = 0.0
    server_s: float = 0.0


class PartitionTerms:
    """Finds the terms of partitions, learnt before shipped; equal hardware is done once."""

    def __init__(self, shape: ClusterShape, job: Job, coefficients: Coefficients) -> None:
        self.shape = shape
        self.job = job
        self.coefficients = coefficients
        self._partitions = {p.name: p for p in shape.partitions}
        self._bases: dict[object, Basis] = {}
        self._found: dict[int, tuple[Partition, Basis]] = {}  # by id of the partition held
        laws = coefficients.learnt.lifetimes
        self._lifetimes = {one.partition: one for one in laws if one.cluster == shape.name}

    def basis(self, partition: Partition) -> Basis:
        known = self._found.get(id(partition))
        if known is None:
            known = self._found[id(partition)] = (partition, self._basis_of(partition))
        return known[1]

    def _basis_of(self, partition: Partition) -> Basis:
        hardware = (
            partition.gpu,
            partition.gpus_per_node,
            partition.mix,
            partition.cores_per_node,
            partition.network_bytes_s,
            partition.scratch_path is None,
            partition.scratch_bytes_s,
            partition.preemptible,
            partition.mean_time_to_preemption_s,
        )
        if hardware not in self._bases:
            self._bases[hardware] = basis_of(partition, self.shape, self.job, self.coefficients)
        return self._bases[hardware]

    def step(self, partition: Partition, layout: Layout) -> StepParts:
        basis = self.basis(partition)
        compute_s = basis.compute_s
        if layout == "ps":
            alone_s = self._mixed_s(partition) if partition.mix else compute_s
            compute_s = alone_s + self._slow_s(partition)
        shipped = StepParts(
            compute_s=compute_s,
            transfer_s=basis.transfer_s,
            hop_s=basis.hop_s,
            server_s=basis.server_s,
        )
        nearest = self.learnt_step(partition, layout)
        if nearest is None:
            return shipped
        compute_s = nearest.compute_s * self._compute_ratio(partition, nearest)
        if layout == "ps" and nearest.partition != partition.name and partition.mix:
            compute_s *= self._mixed_s(partition) / basis.compute_s
        if layout == "ps":
            measured_s = 0.0
            if nearest.layout == layout:
                measured_s = self._slow_s(self._partitions.get(nearest.partition, partition))
            compute_s += max(self._slow_s(partition) - measured_s, 0.0)
        if nearest.layout != layout:
            return StepParts(
                compute_s=compute_s,
                transfer_s=shipped.transfer_s,
                hop_s=shipped.hop_s,
                server_s=shipped.server_s,
            )
        measured = self._partitions.get(nearest.partition, partition)
        link_ratio = measured.network_bytes_s / partition.network_bytes_s
        return StepParts(
            compute_s=compute_s,
            transfer_s=nearest.transfer_s * link_ratio,
            hop_s=nearest.hop_s,
            server_s=nearest.server_s,
        )

    def _slow_s(self, partition: Partition) -> float:
        parameters = float(self.job.parameters)
        return float(slow_link_s(parameters, link_bytes_s=partition.network_bytes_s))

    def _mixed_s(self, partition: Partition) -> float:
        """A worker's step on whatever nodes Slurm picks of a mix: speeds add up, so it is
        their mean that counts."""
        batch = batch_per_node(self.job, partition)
        speed, nodes = 0.0, 0
        for group in partition.mix:
            alike = dataclasses.replace(partition, gpu=group.gpu, mix=())
            speed += group.nodes / _compute_s(alike, self.job, self.coefficients, batch)
            nodes += group.nodes
        return nodes / speed

    def learnt_step(self, partition: Partition, layout: Layout) -> LearntStep | None:
        """What stands in for the shipped step: the learnt one that is nearest."""
        return nearest_step(
            self.coefficients.learnt,
            cluster=self.shape.name,
            workload=self.job.request.workload,
            partition=partition.name,
            layout=layout,
            batch=self.job.request.batch_per_worker,
            each=workers_per_node(self.job, partition),
        )

    def _compute_ratio(self, partition: Partition, learnt: LearntStep) -> float:
        """How much slower the models hold this partition and batch than the measured ones."""
        measured = self._partitions.get(learnt.partition, partition)
        measured_s = _compute_s(measured, self.job, self.coefficients, learnt.batch_per_node)
        return self.basis(partition).compute_s / measured_s

    def learnt_partitions(self) -> frozenset[str]:
        """Names of partitions of this cluster of which anything was learnt."""
        learnt, name = self.coefficients.learnt, self.shape.name
        known = [(step.cluster, step.partition) for step in learnt.steps]
        known += [(stage.cluster, stage.partition) for stage in learnt.stages]
        known += [(law.cluster, law.partition) for law in learnt.lifetimes]
        return frozenset(partition for cluster, partition in known if cluster == name)

    def own_runs(self, partitions: Sequence[Partition]) -> Iterator[tuple[int, OwnRuns]]:
        """Configurations that this workload ran in at this batch, by index of partition."""
        learnt, request = self.coefficients.learnt.steps, self.job.request
        if not learnt:
            return
        place = {partition.name: at for at, partition in enumerate(partitions)}
        asked = (self.shape.name, request.workload, request.batch_per_worker)
        for step in learnt:
            at = place.get(step.partition)
            known = (step.cluster, step.workload, step.batch_per_worker)
            if at is None or known != asked:
                continue
            if step.workers_per_node == workers_per_node(self.job, partitions[at]):
                yield from ((at, own) for own in step.own)

    def learnt_stage(self, partition: Partition) -> LearntStage | None:
        """Of this partition; else of another one, whose overhead alone counts here."""
        of_cluster = [
            s for s in self.coefficients.learnt.stages if s.cluster == self.shape.name
        ]
        own = (s for s in of_cluster if s.partition == partition.name)
        return next(own, next(iter(of_cluster), None))

    def stage(self, partition: Partition) -> tuple[float, float]:
        """(overhead in s, rate in bytes/s); rate 0 where there is no scratch."""
        learnt = self.learnt_stage(partition)
        rate = self.basis(partition).stage_bytes_s
        if learnt is None:
            return self.coefficients.base.stage.overhead_s.value, rate
        if learnt.partition == partition.name and rate > 0:
            rate = learnt.rate_bytes_s
        return learnt.overhead_s, rate

    def learnt_start(self, layout: Layout) -> LearntStart | None:
        return nearest_start(
            self.coefficients.learnt,
            cluster=self.shape.name,
            workload=self.job.request.workload,
            layout=layout,
        )

    def start(self, layout: Layout) -> tuple[float, float]:
        """(seconds that are fixed, seconds a node)."""
        learnt = self.learnt_start(layout)
        if learnt is not None:
            return learnt.fixed_s, learnt.node_s
        base = self.coefficients.base.start
        return base.fixed_s.value, base.node_s.value

    def learnt_checkpoint(self) -> LearntCheckpoint | None:
        saves = self.coefficients.learnt.checkpoints
        return next((s for s in saves if s.cluster == self.shape.name), None)

    def checkpoint_s(self, partition: Partition) -> float:
        size = self.job.checkpoint_bytes
        learnt = self.learnt_checkpoint()
        if learnt is not None:
            return float(checkpoint_s(size, fixed_s=learnt.fixed_s, byte_s=learnt.byte_s))
        fixed_s = self.coefficients.base.checkpoint.fixed_s.value
        byte_s = self.basis(partition).checkpoint_byte_s
        return float(checkpoint_s(size, fixed_s=fixed_s, byte_s=byte_s))

    def learnt_lifetime(self, partition: Partition) -> LearntLifetime | None:
        return self._lifetimes.get(partition.name)


def law_of(learnt: LearntLifetime) -> Lifetime:
    """Of a next allocation in the partition, node failures left out."""
    return Lifetime(edges_s=learnt.edges_s, hazards_1_s=learnt.hazards_1_s)


def stated_preemption_s(partition: Partition, coefficients: Coefficients) -> float:
    """Mean time to preemption as the site states it, else as assumed; 0 where it cannot be."""
    if not partition.preemptible:
        return 0.0
    unknown_s = coefficients.base.failure.unknown_preemption_s.value
    return partition.mean_time_to_preemption_s or unknown_s


def terms_of(
    partitions: Sequence[Partition], finder: PartitionTerms, queue_waits: Mapping[str, float]
) -> Terms:
    """The terms of partitions, in their order. queue_waits: seconds, by partition name."""
    starts = np.array([finder.start("allreduce"), finder.start("ps")]).T
    asked_s = finder.job.request.time_limit_s or math.inf
    rows = []
    for partition in partitions:
        allreduce = finder.step(partition, "allreduce")
        servers = finder.step(partition, "ps")
        overhead_s, rate = finder.stage(partition)
        save_s = finder.checkpoint_s(partition)
        stated_s = stated_preemption_s(partition, finder.coefficients)
        warned = warned_s(grace_s=partition.grace_s, kill_wait_s=finder.shape.kill_wait_s)
        rows.append(
            (
                allreduce.compute_s,
                servers.compute_s,
                allreduce.transfer_s,
                allreduce.hop_s,
                servers.server_s,
                overhead_s,
                rate,
                partition.network_bytes_s,
                save_s,
                1.0 / stated_s if stated_s else 0.0,
                float(save_s <= warned),
                min(asked_s, partition.max_time_s or math.inf),
                partition.price_per_node_hour,
                queue_waits.get(partition.name, 0.0),
            )
        )
    columns = np.array(rows, dtype=np.float64).reshape(len(rows), 14).T
    learnt = tuple(finder.learnt_lifetime(partition) for partition in partitions)
    job, base = finder.job, finder.coefficients.base
    gpus = np.array([partition.gpus_per_node for partition in partitions], dtype=np.float64)
    terms = Terms(
        compute_s=columns[0:2],
        transfer_s=columns[2],
        hop_s=columns[3],
        server_s=columns[4],
        server_share=server_shares(
            job.fullest_shards,
            parameters=float(job.parameters),
            tensors=float(job.tensors),
            base=base,
            most=max([MOST, job.request.servers or 0, *(one.nodes for one in partitions)]),
        ),
        stage_overhead_s=columns[5],
        stage_bytes_s=columns[6],
        link_bytes_s=columns[7],
        start_fixed_s=starts[0],
        start_node_s=starts[1],
        checkpoint_s=columns[8],
        preemption_1_s=columns[9],
        lifetimes=learnt,
        notice=columns[10],
        limit_s=columns[11],
        price=columns[12],
        queue_s=columns[13],
        link_loads=np.stack(link_loads(gpus)),
        per_node=np.array([workers_per_node(finder.job, one) for one in partitions], float),
        own=OwnRatios.of(finder.own_runs(partitions), partitions=len(partitions)),
    )
    return _with_learnt_hazards(terms, finder) if any(learnt) else terms


def _with_learnt_hazards(terms: Terms, finder: PartitionTerms) -> Terms:
    """A law's hazard in place of the stated one, where a law was learnt."""
    at = np.array([i for i, law in enumerate(terms.lifetimes) if law is not None])
    laws = [law for law in terms.lifetimes if law is not None]
    rates = terms.stage_bytes_s[at]
    staged_s = np.divide(
        finder.job.request.data.total_bytes, rates, out=np.zeros(len(at)), where=rates > 0.0
    )
    begun_s = terms.stage_overhead_s[at] + staged_s
    begun_s = begun_s + terms.start_fixed_s[0] + terms.start_node_s[0]
    hazards = terms.preemption_1_s.copy()
    hazards[at] = equivalent_hazards_1_s(
        LifetimeTable.of([law.edges_s for law in laws], [law.hazards_1_s for law in laws]),
        checkpoint_s=terms.checkpoint_s[at],
        restart_s=begun_s + terms.checkpoint_s[at],
        delay_s=finder.shape.requeue_delay_s,
        notice=terms.notice[at],
    )
    return dataclasses.replace(terms, preemption_1_s=hazards)
