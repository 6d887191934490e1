"""Which partitions and layouts a job does not fit, and why, in words."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import dataclass

from sbtrain_perf.coefficients import Base
from sbtrain_perf.job import Job
from sbtrain_perf.request import Layout, Partition, slurm_partition
from sbtrain_perf.wording import count

_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBounds:
    """Least and most nodes of one job, both ends included; empty where low > high."""

    low: int
    high: int


def node_bounds(partition: Partition, job: Job) -> NodeBounds:
    """What the request and the partition leave. With servers, one more than they at least."""
    asked = job.request.nodes
    most = min(partition.nodes, partition.max_nodes_per_job)
    return NodeBounds(
        low=max(asked.low, 1), high=most if asked.high is None else min(asked.high, most)
    )


def partition_refusal(partition: Partition, job: Job) -> str | None:
    """Why no layout fits the partition; None when one may."""
    request = job.request
    if request.partition and slurm_partition(partition.name) not in request.partition.split(
        ","
    ):
        return f"not the partition that was asked for ({request.partition})"
    if wants_gpus(request.sbatch_options) and partition.gpu is None:
        return "GPUs were asked for, it has none"
    asked = _gpu_types(request.sbatch_options)
    if partition.gres and asked is not None:
        own = re.search(_GPU_TYPE, partition.gres)
        if asked != ({own[1].lower()} if own else set()):
            return f"GPUs were asked for in other words than its {partition.gres}"
    memory_gib = asked_memory_gib(request.sbatch_options)
    if memory_gib > partition.memory_gib_per_node:
        return (
            f"{memory_gib:.3g} GiB a node were asked for, it has "
            f"{partition.memory_gib_per_node:.3g}"
        )
    gpus = asked_gpus_per_node(request.sbatch_options)
    if gpus > partition.gpus_per_node:
        return f"{count(gpus, 'GPU')} a node were asked for, it has {partition.gpus_per_node}"
    bounds = node_bounds(partition, job)
    if bounds.low > bounds.high:
        return f"{count(bounds.low, 'node')} at least, it gives one job {bounds.high}"
    size = request.data.total_bytes
    if partition.scratch_path and 0 < partition.scratch_bytes < size:
        return (
            f"the data ({size / _GIB:.3g} GiB) does not fit its scratch "
            f"({partition.scratch_bytes / _GIB:.3g} GiB)"
        )
    return None


def worker_refusal(partition: Partition, job: Job, base: Base, *, layout: Layout) -> str | None:
    """Why a worker does not fit a node; None when it does, or the network is not known.

    Weights, gradients and Adam's moments; under parameter servers the first two.
    """
    if not job.parameters_known:
        return None
    share = 1.0 if layout == "allreduce" else 0.5
    weights = share * _weights_bytes(job, base)
    activations = (job.request.model.activation_bytes_per_sample or 0) * float(
        job.request.batch_per_worker
    )
    if partition.gpu is not None:
        needed = (weights + activations / partition.gpus_per_node) / _GIB
        if needed > partition.gpu.memory_gib:
            return f"{needed:.3g} GiB a GPU, it has {partition.gpu.memory_gib:.3g}"
    else:
        needed = (weights + activations) / _GIB
        if needed > partition.memory_gib_per_node:
            return f"{needed:.3g} GiB a worker, a node has {partition.memory_gib_per_node:.3g}"
    return None


def fewest_servers(partition: Partition, job: Job, base: Base) -> int:
    """Servers among which the network's weights and moments fit; 1 where not known."""
    if not job.parameters_known:
        return 1
    return math.ceil(_weights_bytes(job, base) / _GIB / partition.memory_gib_per_node)


def servers_refusal(
    partition: Partition, job: Job, base: Base, *, servers: int, most_nodes: int
) -> str | None:
    """Why so many servers do not do; None when they do."""
    if servers + 1 > most_nodes:
        return f"{count(servers, 'server')} and a worker need {servers + 1} nodes"
    if servers < fewest_servers(partition, job, base):
        needed = _weights_bytes(job, base) / servers / _GIB
        return f"{needed:.3g} GiB a server, a node has {partition.memory_gib_per_node:.3g}"
    return None


def _weights_bytes(job: Job, base: Base) -> float:
    return base.unknown_model.memory_parameter_bytes.value * job.parameters


_GPU_OPTION = re.compile(
    r"--gres=(.*,)?(gres/)?gpu\b|--gpus(-per-(node|task|socket))?=|-G.+|--tres-per-.*gpu"
)
_GPU_FLAGS = {"-G", "--gpus", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket"}


_GPU_TYPE = r"gpu:([A-Za-z_][\w.-]*)"


def _gpu_types(sbatch_options: tuple[str, ...]) -> set[str] | None:
    """Types that the user's own options name; empty where they name none, None where there
    are no such options."""
    if not wants_gpus(sbatch_options):
        return None
    return {t.lower() for t in re.findall(_GPU_TYPE, " ".join(sbatch_options))}


_MEMORY_UNITS = {"": 1 / 1024, "K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0}


def asked_memory_gib(sbatch_options: tuple[str, ...]) -> float:
    """What `--mem` asks of each node; 0 where it does not, or asks for all there is."""
    found = re.fullmatch(r"(\d+)([KMGT]?)B?", _last(sbatch_options, "--mem"), re.IGNORECASE)
    return int(found[1]) * _MEMORY_UNITS[found[2].upper()] if found else 0.0


def asked_gpus_per_node(sbatch_options: tuple[str, ...]) -> int:
    """What `--gpus-per-node` or `--gres=gpu` asks of each node; 0 where they do not."""
    per_node = re.fullmatch(r"(?:[\w.-]+:)?(\d+)", _last(sbatch_options, "--gpus-per-node"))
    said = [int(per_node[1])] if per_node else []
    for one in _last(sbatch_options, "--gres").split(","):
        gres = re.fullmatch(r"(?:gres/)?gpu(?::[A-Za-z_][\w.-]*)?(?::(\d+))?", one)
        if gres:
            said.append(int(gres[1] or 1))
    return max(said, default=0)


def _last(sbatch_options: tuple[str, ...], name: str) -> str:
    """The value of an option, as `--name=value` or in the word after it."""
    value = ""
    for option, after in itertools.pairwise((*sbatch_options, "")):
        if option.startswith(f"{name}="):
            value = option.partition("=")[2]
        elif option == name:
            value = after
    return value


def wants_gpus(sbatch_options: tuple[str, ...]) -> bool:
    """Whether the user's own sbatch options ask for GPUs."""
    for option, value in itertools.pairwise((*sbatch_options, "")):
        if _GPU_OPTION.match(option) or option in _GPU_FLAGS:
            return True
        if option == "--gres" and re.match(r"(.*,)?(gres/)?gpu\b", value):
            return True
    return False
