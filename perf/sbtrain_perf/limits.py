"""Which partitions and layouts a job does not fit, and why, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sbtrain_perf.coefficients import Base
from sbtrain_perf.hardware import gpu_types
from sbtrain_perf.job import Job
from sbtrain_perf.placement import batch_per_node, most_workers, workers_per_node
from sbtrain_perf.request import GpuType, Layout, Partition, Request, slurm_partition
from sbtrain_perf.wording import count, duration, size

_GIB = 2**30
PUSHES = "pushes running jobs of others aside: only for those who name it (--partition)"
LOSES = "may preempt, which ends a run that does not resume: for those who name it"
MOST_THREADS = 8  # of a core, each of which may be a CPU to Slurm


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBounds:
    """Least and most nodes of one job, both ends included; empty where low > high."""

    low: int
    high: int


def node_bounds(partition: Partition, job: Job) -> NodeBounds:
    """What the request and the partition leave. With servers, one more than they at least.
    Tasks that the user counts are as many trainers, where the partition has the nodes."""
    asked = job.request.nodes
    most = min(partition.nodes, partition.max_nodes_per_job)
    low = max(asked.low, job.hardware.fewest_nodes(partition.gpus_per_node))
    tasks = most_workers(job)
    if tasks < math.inf:
        most = min(most, math.ceil(tasks / workers_per_node(job, partition)))
    high = most if asked.high is None else min(asked.high, most)
    return NodeBounds(low=max(low, high) if tasks < math.inf else low, high=high)


def set_aside(
    request: Request, partitions: Sequence[Partition]
) -> tuple[Mapping[str, str], ...]:
    """Partitions that nobody is sent to unasked, by name, with the reason. One choice after
    another, until a row will do; who names partitions, or asks for the least time, has all.

    Jobs of some push others' aside: taken only where all do, or a deadline needs it. Runs
    that do not resume are lost where they may be preempted: taken where nothing else fits.
    """
    kind = request.objective.kind
    pushing = {one.name: PUSHES for one in partitions if one.preempts_others}
    if request.partition or kind == "time" or len(pushing) == len(partitions):
        return ({},)
    if kind == "deadline" and pushing:
        return pushing, {}
    losing = {one.name: LOSES for one in partitions if one.preemptible}
    if kind == "balanced" and losing and not request.resumable:
        return {**losing, **pushing}, pushing
    return (pushing,)


def partition_refusal(partition: Partition, job: Job) -> str | None:
    """Why no layout fits the partition; None when one may."""
    request = job.request
    if request.partition and slurm_partition(partition.name) not in request.partition.split(
        ","
    ):
        return f"not the partition that was asked for ({request.partition})"
    if not partition.planned and not request.partition:
        return "planned for those who name it (--partition)"
    reason = _hardware_refusal(partition, job)
    if reason is not None:
        return reason
    asked_s, most_s = request.time_limit_s, partition.max_time_s
    if asked_s is not None and most_s is not None and asked_s > most_s:
        return f"{duration(asked_s)} were asked for, it ends jobs after {duration(most_s)}"
    bounds = node_bounds(partition, job)
    if bounds.low > bounds.high:
        return f"{count(bounds.low, 'node')} at least, it gives one job {bounds.high}"
    total_bytes = request.data.total_bytes
    if partition.scratch_path and 0 < partition.scratch_bytes < total_bytes:
        return (
            f"the data ({size(total_bytes)}) does not fit its scratch "
            f"({size(partition.scratch_bytes)})"
        )
    return None


def _hardware_refusal(partition: Partition, job: Job) -> str | None:
    """Why the nodes cannot give what the user's own sbatch options ask of them."""
    asked, held = job.hardware, partition.gpus_per_node
    if asked.gpu_types is not None and partition.gpu is None:
        return "GPUs were asked for, it has none"
    typed = gpu_types(partition.gres)
    if (typed or partition.mix) and asked.gpu_types not in (None, typed):
        said = "another type of GPU was" if asked.gpu_types else "GPUs without a type were"
        return f"{said} asked for, it is asked for by {partition.gres}"
    memory_gib = partition.memory_gib_per_node
    if memory_gib is not None and asked.memory_gib > memory_gib:
        by = "" if asked.memory_option == "--mem" else f" ({asked.memory_option})"
        return (
            f"{round(asked.memory_gib, 1):,.10g} GiB a node were asked for{by}, it has "
            f"{memory_gib:,.10g}"
        )
    most_cpus = MOST_THREADS * partition.cores_per_node
    if asked.cpus > most_cpus:
        return (
            f"{asked.cpus} CPUs a node were asked for, it has {partition.cores_per_node} cores"
        )
    if asked.gpus_per_node > held:
        return f"{count(asked.gpus_per_node, 'GPU')} a node were asked for, it has {held}"
    if asked.task_gpus > held:
        return f"{asked.task_gpus} GPUs a node were asked for (--gpus-per-task), it has {held}"
    most = held * node_bounds(partition, job).high if asked.gpus else 0
    if asked.gpus > most:
        return f"{count(asked.gpus, 'GPU')} were asked for (--gpus), it gives one job {most}"
    return None


def worker_refusal(partition: Partition, job: Job, base: Base, *, layout: Layout) -> str | None:
    """Why the workers of a node do not fit it; None when they do, or the network is not known.

    Weights, gradients and Adam's moments; under parameter servers the first two. Each worker
    has its own, or one on each of its GPUs.
    """
    if not job.parameters_known:
        return None
    share = 1.0 if layout == "allreduce" else 0.5
    weights = share * _weights_bytes(job, base)
    each = workers_per_node(job, partition)
    activations = (job.request.model.activation_bytes_per_sample or 0) * float(
        batch_per_node(job, partition)
    )
    if partition.gpu is not None:
        gpus = partition.gpus_per_node
        needed = weights * max(each / gpus, 1.0) + activations / gpus
        held = _held(partition.gpu)
        if needed > held:
            return f"{size(needed)} a GPU, it has {size(held)}"
    else:
        needed, held = each * weights + activations, _held(partition)
        if needed > held:
            all_of = "a worker" if each == 1 else f"for {each} workers"
            return f"{size(needed)} {all_of}, a node has {size(held)}"
    return None


def _held(by: GpuType | Partition) -> float:
    """Bytes of memory; infinite where not known."""
    gib = by.memory_gib if isinstance(by, GpuType) else by.memory_gib_per_node
    return math.inf if gib is None else gib * _GIB


def fewest_servers(partition: Partition, job: Job, base: Base) -> int:
    """Servers among which the network's weights and moments fit; 1 where not known."""
    if not job.parameters_known:
        return 1
    return max(1, math.ceil(_weights_bytes(job, base) / _held(partition)))


def servers_refusal(
    partition: Partition, job: Job, base: Base, *, servers: int, most_nodes: int
) -> str | None:
    """Why so many servers do not do; None when they do."""
    if servers + 1 > most_nodes:
        return f"{count(servers, 'server')} and a worker need {servers + 1} nodes"
    if servers < fewest_servers(partition, job, base):
        needed = size(_weights_bytes(job, base) / servers)
        return f"{needed} a server, a node has {size(_held(partition))}"
    return None


def _weights_bytes(job: Job, base: Base) -> float:
    return base.unknown_model.memory_parameter_bytes.value * job.parameters
