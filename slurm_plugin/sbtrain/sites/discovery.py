"""What Slurm says of its cluster, in the form of a site file. What it does not say is left out:
prices, rates of links and filesystems, how long a job lasts until it is preempted."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from sbtrain.sites.gpu_names import UNTYPED, NodeGpus, is_slice, node_gpus
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
    pushing = pushing_aside(partitions, config.preempt_type)
    kind_of = {name: at for at, kind in enumerate(kinds) for name in names_in(kind.nodes)}
    gpus: dict[str, dict[str, Any]] = {}
    tables: dict[str, dict[str, Any]] = {}
    for one in sorted(partitions, key=lambda one: not one.default):
        sizes = Counter(kind_of[name] for name in names_in(one.nodes) if name in kind_of)
        held = [(kinds[at], size) for at, size in sorted(sizes.items())]
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
        "kill_wait_s": config.kill_wait_s,
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


def _nodes(one: PartitionInfo, held: Sequence[tuple[NodeKind, int]]) -> dict[str, Any]:
    """Cores and memory that each of its nodes has."""
    nodes = sum(size for _, size in held)
    memory_mib = min(kind.memory_mib for kind, _ in held)
    found: dict[str, Any] = {"nodes": nodes}
    if one.max_nodes is not None and 0 < one.max_nodes < nodes:
        found["max_nodes_per_job"] = one.max_nodes
    cores, most = min(kind.cores for kind, _ in held), one.max_cpus_per_node
    if most is not None and most < max(kind.cpus for kind, _ in held):
        cores = min(cores, most)
        found["whole_nodes"] = False
    found["cores_per_node"] = max(1, cores)
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
    by_word: dict[str, Counter[int]] = {}
    names: dict[str, set[str]] = {}
    for kind, size in held:
        for has in _whole(kind, one):
            word = has.gres.removeprefix("gpu").lstrip(":")
            by_word.setdefault(word, Counter())[has.count] += size
            names.setdefault(word, set()).add(has.name)
    if not by_word:
        return {}
    # By their words alone can they be asked for: of untyped ones that are of several types,
    # nobody can say which a job gets; of two words for one type, each is its own.
    told = {word: told.pop() if len(told) == 1 else UNTYPED for word, told in names.items()}
    alike = Counter(told.values())
    types = {}
    for word, counts in by_word.items():
        name = told[word] if alike[told[word]] == 1 else word or UNTYPED
        most = max(counts, key=lambda least: least * _with(counts, least))
        types[name] = {"nodes": _with(counts, most), "gpus_per_node": most, "gres": word}
        gpus.setdefault(name, {})
    (name, of), *others = types.items()
    if not others and not any(_has_several(kind) for kind, _ in held):
        if of["nodes"] == sum(size for _, size in held):
            return {"gpu": name, "gpus_per_node": of["gpus_per_node"]}
        del of["gres"]  # nothing else can be meant
    return {"gpu_types": types}


def _has_several(kind: NodeKind) -> bool:
    """Types of GPU on one node."""
    return len({one.kind for one in kind.gres if one.name == "gpu" and one.count}) > 1


def _whole(kind: NodeKind, one: PartitionInfo) -> Iterable[NodeGpus]:
    """The kinds of GPU on such a node, but for parts of one. Where there are several, the one
    it has most of: a job's ranks are alike on every node."""
    found = [
        has
        for has in node_gpus(kind.gres, features=kind.features, partitions=(one.name,))
        if not is_slice(has.gres)
    ]
    return sorted(found, key=lambda has: -has.count)[:1]


def _with(counts: Counter[int], least: int) -> int:
    """Nodes that have as many."""
    return sum(nodes for count, nodes in counts.items() if count >= least)


def _key(text: str) -> str:
    return text if re.fullmatch(r"[A-Za-z0-9_-]+", text) else json.dumps(text)


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
