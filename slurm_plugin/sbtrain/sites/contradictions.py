"""What is wrong with the data of a site that no single key shows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from sbtrain.sites.schema import Problem
from sbtrain.sites.shape import knows_gpu


def contradictions(data: dict[str, Any], *, whole: bool = True) -> Iterator[Problem]:
    """What no single key shows: data fits the schema already.

    whole: nobody else says what the data leave out.
    """
    one, together = data.get("shared_client_gb_s", 0.0), data.get("shared_gb_s", math.inf)
    if one > together:
        yield Problem(
            path=("shared_client_gb_s",),
            message=f"one client's {one:g} is more than the {together:g} that all clients "
            "have together (shared_gb_s)",
        )
    gpus = data.get("gpus", {})
    for name, partition in data.get("partitions", {}).items():
        path = ("partitions", name)
        if re.search(r"[\s,:]", name) or not name:
            yield Problem(path=path, message=f"{name!r} cannot be a partition's name")
        for key, message in _partition_contradictions(partition, gpus, whole=whole):
            yield Problem(path=(*path, key), message=message)


def _partition_contradictions(
    partition: dict[str, Any], gpus: dict[str, Any], *, whole: bool
) -> Iterator[tuple[str, str]]:
    nodes, most = partition.get("nodes", math.inf), partition.get("max_nodes_per_job", 1)
    if most > nodes:
        yield "max_nodes_per_job", f"{most} is more than the partition's {nodes} nodes"
    gpu = partition.get("gpu")
    if gpu is not None and not knows_gpu(gpu, gpus) and (whole or gpus):
        known = ", ".join(gpus) or "none"
        yield "gpu", f"there is no gpus.{gpu} in this file (there: {known})"
    groups = partition.get("gpu_types", {})
    if groups and gpu is not None:
        yield "gpu_types", "given, and gpu too: give one of them"
    held = sum(group.get("nodes", 0) for group in groups.values())
    if held > nodes:
        yield "gpu_types", f"{held} nodes together, the partition has {nodes}"
    for name in groups:
        if not knows_gpu(name, gpus) and (whole or gpus):
            yield "gpu_types", f"there is no gpus.{name} in this file"
    if whole and gpu is None and partition.get("gpus_per_node"):
        yield "gpus_per_node", "given, but gpu is not"
    if not partition.get("preemptible", not whole) and "mean_time_to_preemption_h" in partition:
        yield "mean_time_to_preemption_h", "given, but preemptible is not true"
    longest = partition.get("max_time_h")
    default = partition.get("default_time_h", 0)
    if longest is not None and default > longest:
        yield "default_time_h", f"{default:g} is more than max_time_h, {longest:g}"
