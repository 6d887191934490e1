"""What Slurm says of its cluster, in the form of a site file. What it does not say is left out:
prices, rates of links and filesystems, how long a job lasts until it is preempted."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sbtrain.sites.gpu_names import NodeGpus, node_gpus
from sbtrain.sites.tiers import pushed_aside, pushing_aside
from sbtrain.slurm.client import PartitionInfo
from sbtrain.slurm.cluster_config import ClusterConfig
from sbtrain.slurm.node_kinds import NodeKind, names_in

_UNSET_MIB = 1  # RealMemory where slurm.conf says nothing
_HOUR_S = 3600.0
_REQUEUE_MARGIN_S = 2.0  # from the end of the hold to the job's start


def discovered(
    partitions: Sequence[PartitionInfo], kinds: Sequence[NodeKind], config: ClusterConfig
) -> dict[str, Any]:
    """Partitions that have nodes, in Slurm's order with its default first."""
    pushed = pushed_aside(partitions, config.preempt_type)
    pushing = pushing_aside(partitions)
    gpus: dict[str, dict[str, Any]] = {}
    tables: dict[str, dict[str, Any]] = {}
    for one in sorted(partitions, key=lambda one: not one.default):
        held = [(kind, size) for kind in kinds if (size := _shared(one.nodes, kind.nodes))]
        if not held or re.search(r"[\s,:]", one.name):
            continue
        tables[one.name] = {
            **_nodes(one, held),
            **_gpus(one, held, gpus),
            **({"preemptible": True} if one.name in pushed else {}),
            **({"preempts_others": True} if one.name in pushing else {}),
            **({"grace_s": one.grace_s} if one.grace_s else {}),
            **_times(one),
            **_scratch(held, config.tmp_fs),
        }
    return {
        "name": config.name or "cluster",
        "requeue_delay_s": config.requeue_s + _REQUEUE_MARGIN_S,
        **({"gpus": gpus} if gpus else {}),
        "partitions": tables,
    }


def as_toml(data: dict[str, Any], *, above: str = "") -> str:
    """The text of a site file with such data."""
    plain = {key: value for key, value in data.items() if not isinstance(value, dict)}
    lines = [f"{key} = {_value(value)}" for key, value in plain.items()]
    text = "".join(f"{line}\n" for line in lines)
    for key, value in data.items():
        if isinstance(value, dict):
            path = f"{above}{_key(key)}"
            if key not in ("partitions", "gpus", "gpu_types"):
                text += f"\n[{path}]\n"
            text += as_toml(value, above=f"{path}.")
    return text


def _shared(nodes: str, others: str) -> int:
    return len(names_in(nodes) & names_in(others))


def _nodes(one: PartitionInfo, held: Sequence[tuple[NodeKind, int]]) -> dict[str, Any]:
    """Cores and memory that each of its nodes has."""
    nodes = sum(size for _, size in held)
    memory_mib = min(kind.memory_mib for kind, _ in held)
    found: dict[str, Any] = {"nodes": nodes}
    if one.max_nodes is not None and 0 < one.max_nodes < nodes:
        found["max_nodes_per_job"] = one.max_nodes
    found["cores_per_node"] = max(1, min(kind.cores for kind, _ in held))
    if memory_mib > _UNSET_MIB:
        found["memory_gib_per_node"] = round(memory_mib / 1024, 3)
    return found


def _times(one: PartitionInfo) -> dict[str, float]:
    found = {"max_time_h": one.max_time_s, "default_time_h": one.default_time_s}
    return {key: seconds / _HOUR_S for key, seconds in found.items() if seconds}


def _scratch(held: Sequence[tuple[NodeKind, int]], tmp_fs: str) -> dict[str, Any]:
    """Below TmpFS, whose patterns for a node's name are alike here."""
    folder = tmp_fs.replace("%h", "%n")
    if not re.fullmatch(r"/([^%]|%n)*", folder):
        return {}
    found: dict[str, Any] = {"scratch": f"{folder.rstrip('/')}/sbtrain-%u"}
    disk_mib = min(kind.tmp_disk_mib for kind, _ in held)
    return found | ({"scratch_gib": round(disk_mib / 1024, 3)} if disk_mib else {})


def _gpus(
    one: PartitionInfo,
    held: Sequence[tuple[NodeKind, int]],
    gpus: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """The keys of its GPUs; adds types that are not there to gpus, of which nothing is known.

    Of nodes with different numbers of a type it is planned with as many as leave most GPUs.
    """
    by_type: dict[str, Counter[int]] = {}
    words: dict[str, str] = {}
    for kind, size in held:
        for has in _whole(kind, one):
            by_type.setdefault(has.name, Counter())[has.count] += size
            words[has.name] = has.gres.removeprefix("gpu").lstrip(":")
    if not by_type:
        return {}
    types = {}
    for name, counts in by_type.items():
        most = max(counts, key=lambda least: least * _with(counts, least))
        types[name] = {"nodes": _with(counts, most), "gpus_per_node": most, "gres": words[name]}
        gpus.setdefault(name, {})
    (name, of), *others = types.items()
    if not others and of["nodes"] == sum(size for _, size in held):
        return {"gpu": name, "gpus_per_node": of["gpus_per_node"]}
    return {"gpu_types": types}


def _whole(kind: NodeKind, one: PartitionInfo) -> Iterable[NodeGpus]:
    """The kinds of GPU on such a node. Where there are several, the one it has most of: a
    job's ranks are alike on every node."""
    found = node_gpus(kind.gres, features=kind.features, partitions=(one.name,))
    return sorted(found, key=lambda has: -has.count)[:1]


def _with(counts: Counter[int], least: int) -> int:
    """Nodes that have as many."""
    return sum(nodes for count, nodes in counts.items() if count >= least)


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else json.dumps(text)


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
