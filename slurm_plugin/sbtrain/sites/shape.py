"""The data of a site -> ClusterShape. schema.json says what the data hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from sbtrain_perf.gpu_figures import PUBLISHED_GPUS
from sbtrain_perf.request import (
    ClusterShape,
    GpuGroup,
    GpuType,
    Partition,
    slurm_partition,
)

_GB = 1e9
_GBIT = 1e9 / 8
_GIB = 2**30
_HOUR_S = 3600.0
# Of which nothing is stated: an NFS server behind 10 Gbit/s.
SHARED_GB_S, SHARED_CLIENT_GB_S = 1.0, 0.5
_PUBLISHED = {name.lower(): gpu for name, gpu in PUBLISHED_GPUS.items()}
_GPU = {
    "peak_tflops": ("peak_tflops", 1.0),
    "memory_gib": ("memory_gib", 1.0),
    "memory_gb_s": ("memory_bytes_s", _GB),
}
_SHARED = {"shared_gb_s": "shared_bytes_s", "shared_client_gb_s": "shared_client_bytes_s"}
_RATES = {
    "network_gbit_s": ("network_bytes_s", _GBIT),
    "scratch_gb_s": ("scratch_bytes_s", _GB),
}


def shape_of(data: dict[str, Any], source: str) -> ClusterShape:
    """
    Args:
        data: fits the schema and contradicts itself nowhere; gpus may lack types that are
            known by name.
        source: what the plan says that it was read from.
    """
    plain = ("currency", "preemption_signal", "mpi_plugin", "max_requeues")
    given = {key: data[key] for key in plain if key in data}
    given |= {
        key: float(data[key]) for key in ("requeue_delay_s", "kill_wait_s") if key in data
    }
    gpus = data.get("gpus", {})
    return ClusterShape(
        name=data["name"],
        source=source,
        partitions=tuple(
            pool
            for name, partition in data["partitions"].items()
            for pool in _pools(_partition(name, partition, gpus), partition, gpus)
        ),
        shared_bytes_s=max(
            data.get("shared_gb_s", SHARED_GB_S),
            data.get("shared_client_gb_s", SHARED_CLIENT_GB_S),
        )
        * _GB,
        shared_client_bytes_s=data.get("shared_client_gb_s", SHARED_CLIENT_GB_S) * _GB,
        assumed=tuple(f for key, f in _SHARED.items() if key not in data),
        **given,
    )


def knows_gpu(name: str, gpus: Mapping[str, Any]) -> bool:
    """Whether a type is one of the data's own, or known by name."""
    return name in gpus or name.lower() in _PUBLISHED


def _gpu(name: str, gpus: Mapping[str, Any]) -> GpuType:
    stated = gpus.get(name, {})
    unknown = GpuType(name=name, peak_tflops=None, memory_gib=None, memory_bytes_s=None)
    own = {
        field: stated[key] * factor for key, (field, factor) in _GPU.items() if key in stated
    }
    return dataclasses.replace(_PUBLISHED.get(name.lower(), unknown), name=name, **own)


def without_gpus(shape: ClusterShape) -> ClusterShape:
    """The cluster as it is to a program that uses none: partitions all of whose nodes hold some
    are for those who name them, where there are others."""
    plain: dict[str, Partition] = {}
    bare_nodes = {one.name for one in shape.partitions if one.gpu is None}
    for one in shape.partitions:
        name = slurm_partition(one.name)
        bare = dataclasses.replace(one, name=name, gpu=None, gpus_per_node=0, gres="", mix=())
        if bare_nodes and name not in bare_nodes:
            bare = dataclasses.replace(bare, planned=False)
        if name not in plain or plain[name].nodes < bare.nodes:
            plain[name] = bare
    return dataclasses.replace(shape, partitions=tuple(plain.values()))


# Keys that a partition may leave out: field of Partition and factor to its unit.
_OPTIONAL = {
    "price_per_node_hour": ("price_per_node_hour", 1.0),
    "mean_time_to_preemption_h": ("mean_time_to_preemption_s", _HOUR_S),
    "grace_s": ("grace_s", 1.0),
    "max_time_h": ("max_time_s", _HOUR_S),
    "default_time_h": ("default_time_s", _HOUR_S),
    **_RATES,
}


def _partition(name: str, data: dict[str, Any], gpus: Mapping[str, Any]) -> Partition:
    gpu = _gpu(data["gpu"], gpus) if "gpu" in data else None
    memory = "memory_gib_per_node" in data
    given = {
        field: data[key] * factor for key, (field, factor) in _OPTIONAL.items() if key in data
    }
    return Partition(
        name=name,
        nodes=data["nodes"],
        max_nodes_per_job=data.get("max_nodes_per_job", data["nodes"]),
        cores_per_node=data["cores_per_node"],
        memory_gib_per_node=float(data["memory_gib_per_node"]) if memory else None,
        gpu=gpu,
        gpus_per_node=data.get("gpus_per_node", 1) if gpu else 0,
        preemptible=data.get("preemptible", False),
        preempts_others=data.get("preempts_others", False),
        planned=data.get("planned", True),
        whole_nodes=data.get("whole_nodes", True),
        scratch_path=data.get("scratch"),
        scratch_bytes=int(data.get("scratch_gib", 0) * _GIB),
        assumed=tuple(f for key, (f, _) in _RATES.items() if key not in data),
        **given,
    )


def _pools(
    plain: Partition, data: dict[str, Any], gpus: Mapping[str, Any]
) -> Iterator[Partition]:
    """A partition as it is; or, where its nodes hold different GPUs or none, one a type, one of
    any nodes with GPUs, and one of any nodes.

    Without a heterogeneous job Slurm cannot be asked for so many nodes of one type and so
    many of another: it is asked for one type, or for any.
    """
    types = data.get("gpu_types", {})
    if not types:
        yield plain
        return
    groups = []
    for name, of in types.items():
        group = GpuGroup(
            gpu=_gpu(name, gpus), nodes=of["nodes"], gpus_per_node=of["gpus_per_node"]
        )
        groups.append(group)
        yield dataclasses.replace(
            plain,
            name=f"{plain.name}:{name}",
            nodes=group.nodes,
            max_nodes_per_job=min(plain.max_nodes_per_job, group.nodes),
            gpu=group.gpu,
            gpus_per_node=group.gpus_per_node,
            gres=_gres(
                of.get("gres", name),
                group.gpus_per_node,
                alone=len(types) == 1 and "gres" not in of,
            ),
        )
    if len(groups) > 1:
        yield _mixed(plain, groups)
    if sum(group.nodes for group in groups) < plain.nodes:
        yield plain


def _gres(kind: str, count: int, *, alone: bool) -> str:
    """alone: the partition holds no other type, and none has to be named."""
    return f"gpu:{count}" if alone or not kind else f"gpu:{kind}:{count}"


def _mixed(plain: Partition, groups: list[GpuGroup]) -> Partition:
    """Any nodes, as many GPUs of each as all have; the slowest GPU sets all-reduce's pace."""
    fewest = min(group.gpus_per_node for group in groups)
    slowest = GpuType(name="mixed", peak_tflops=None, memory_gib=None, memory_bytes_s=None)
    for figure in ("peak_tflops", "memory_gib", "memory_bytes_s"):
        of_each = [getattr(group.gpu, figure) for group in groups]
        if None not in of_each:
            slowest = dataclasses.replace(slowest, **{figure: min(of_each)})
    return dataclasses.replace(
        plain,
        name=f"{plain.name}:mixed",
        nodes=sum(group.nodes for group in groups),
        max_nodes_per_job=min(plain.max_nodes_per_job, sum(group.nodes for group in groups)),
        gpu=slowest,
        gpus_per_node=fewest,
        gres=f"gpu:{fewest}",
        mix=tuple(dataclasses.replace(group, gpus_per_node=fewest) for group in groups),
    )
