"""Which partitions and layouts a job does not fit, and why, in words."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sbtrain_perf.coefficients import Base
from sbtrain_perf.job import Job
from sbtrain_perf.request import Layout, Partition
from sbtrain_perf.wording import count

_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBounds:
    """Least and most nodes of one job, both ends included; empty where low > high."""

    low: int
    high: int


def node_bounds(partition: Partition, job: Job, *, servers: int) -> NodeBounds:
    """What the request, the partition and the layout leave: servers need a worker beside."""
    asked = job.request.nodes
    most = min(partition.nodes, partition.max_nodes_per_job)
    return NodeBounds(
        low=max(asked.low, 1 + servers),
        high=most if asked.high is None else min(asked.high, most),
    )


def partition_refusal(partition: Partition, job: Job) -> str | None:
    """Why no layout fits the partition; None when one may."""
    request = job.request
    if request.partition and partition.name not in request.partition.split(","):
        return f"not the partition that was asked for ({request.partition})"
    if wants_gpus(request.sbatch_options) and partition.gpu is None:
        return "GPUs were asked for, it has none"
    bounds = node_bounds(partition, job, servers=0)
    if bounds.low > bounds.high:
        return f"{count(bounds.low, 'node')} at least, it gives one job {bounds.high}"
    size = request.data.total_bytes
    if partition.scratch_path and 0 < partition.scratch_bytes < size:
        return (
            f"the data ({size / _GIB:.3g} GiB) does not fit its scratch "
            f"({partition.scratch_bytes / _GIB:.3g} GiB)"
        )
    return None


def layout_refusal(
    partition: Partition, job: Job, base: Base, *, layout: Layout, servers: int
) -> str | None:
    """Why a layout does not fit a partition that is fit otherwise; None when it does."""
    if layout == "ps":
        bounds = node_bounds(partition, job, servers=servers)
        if bounds.low > bounds.high:
            return f"{count(servers, 'server')} and a worker need {servers + 1} nodes"
    return _memory_refusal(partition, job, base, layout=layout, servers=servers)


def _memory_refusal(
    partition: Partition, job: Job, base: Base, *, layout: Layout, servers: int
) -> str | None:
    """Checked only where the network is known: weights, gradients, Adam's moments."""
    if not job.parameters_known:
        return None
    whole = base.unknown_model.memory_parameter_bytes.value * job.parameters
    activations = (job.request.model.activation_bytes_per_sample or 0) * float(
        job.request.batch_per_worker
    )
    on_worker = whole if layout == "allreduce" else whole / 2  # weights and gradients
    node_gib = partition.memory_gib_per_node
    if partition.gpu is not None:
        needed = (on_worker + activations / partition.gpus_per_node) / _GIB
        if needed > partition.gpu.memory_gib:
            return f"{needed:.3g} GiB a GPU, it has {partition.gpu.memory_gib:.3g}"
    else:
        needed = (on_worker + activations) / _GIB
        if needed > node_gib:
            return f"{needed:.3g} GiB a worker, a node has {node_gib:.3g}"
    if servers and whole / servers / _GIB > node_gib:
        return f"{whole / servers / _GIB:.3g} GiB a server, a node has {node_gib:.3g}"
    return None


_GPU_OPTION = re.compile(
    r"--gres=(.*,)?(gres/)?gpu\b|--gpus(-per-(node|task|socket))?=|-G.+|--tres-per-.*gpu"
)
_GPU_FLAGS = {"-G", "--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket"}


def wants_gpus(sbatch_options: tuple[str, ...]) -> bool:
    """Whether the user's own sbatch options ask for GPUs."""
    for option, value in zip(sbatch_options, (*sbatch_options[1:], ""), strict=True):
        if _GPU_OPTION.match(option) or option in _GPU_FLAGS:
            return True
        if option == "--gres" and re.match(r"(.*,)?(gres/)?gpu\b", value):
            return True
    return False
