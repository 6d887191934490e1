"""How many trainers a job has, and on which of its nodes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.job import Job
from sbtrain_perf.request import Framework, Partition, Role

if TYPE_CHECKING:
    from sbtrain_perf.models import Numbers

# Their ranks have one GPU each; one process of the others drives all that a node has.
_RANK_A_GPU: frozenset[Framework] = frozenset({"torch", "horovod", "mpi"})


def workers_per_node(job: Job, partition: Partition) -> int:
    """Trainers on a node that trains: as the user asks, else one a GPU that the job has there,
    where the framework wants them so."""
    request, asked = job.request, job.hardware
    if request.launch == "script":  # which starts them itself
        return 1
    if request.workers_per_node:
        return request.workers_per_node
    if not (asked.tasks_per_gpu or request.framework in _RANK_A_GPU):
        return 1
    wanted = max(_gpus(job, partition), 1) * max(asked.tasks_per_gpu, 1)
    return min(wanted, math.ceil(asked.tasks / request.nodes.low) or wanted)


def most_workers(job: Job) -> float:
    """As the user's --ntasks bounds them; infinite where nothing does."""
    tasks = job.hardware.tasks if job.request.launch == "ranks" else 0
    return tasks or math.inf


def workers(nodes: Numbers, *, per_node: Numbers, most: float) -> Numbers:
    """nodes: that train, those of the servers left out."""
    return np.minimum(nodes * per_node, most)


def batch_per_node(job: Job, partition: Partition) -> int:
    """Samples that a node takes in a step: its workers share out its GPUs and its cores, so
    that all of them take as long for their batches as one worker with all of the node takes
    for the sum. The forms of a step are therefore those of nodes, however many workers these
    hold; and the gradients of a node cross its link once, as those of GPUs that share it."""
    return workers_per_node(job, partition) * job.request.batch_per_worker


def roles_of(
    *, nodes: int, servers: int, per_node: int = 1, most: float = math.inf
) -> tuple[Role, ...]:
    """Who runs where, by rank. All-reduce (0 servers): workers node by node. Parameter
    servers: the chief beside server 0 on node 0, server i on node i, then the workers.

    most: of workers; where they do not come out even, the first nodes have one more.
    """
    total = int(min((nodes - servers) * per_node, most))
    each, more = divmod(total, nodes - servers)
    hosts = [
        node for node in range(servers, nodes) for _ in range(each + (node - servers < more))
    ]
    placed = tuple(Role(name="worker", index=at, node=host) for at, host in enumerate(hosts))
    if not servers:
        return placed
    served = tuple(Role(name="ps", index=node, node=node) for node in range(servers))
    return (Role(name="chief", index=0, node=0), *served, *placed)


def _gpus(job: Job, partition: Partition) -> int:
    """That the job has on a node: all, unless the user asks for fewer."""
    asked, nodes, held = job.hardware, job.request.nodes, partition.gpus_per_node
    if asked.gpus_per_node:
        return min(asked.gpus_per_node, held)
    if asked.gpus and nodes.low == nodes.high:
        return min(max(asked.gpus // nodes.low, 1), held)
    return held
