"""Nodes by what they are: host lists of those that are alike, and of those that have a
feature, so that ten thousand nodes are kept in a few lines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from sbtrain.slurm.client import Gres, NodeInfo
from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.hostlist import compress, expand


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """Nodes that are alike; a host list. memory_mib, tmp_disk_mib: 0 where Slurm does not know
    them."""

    nodes: str
    cpus: int
    cores: int
    memory_mib: int
    tmp_disk_mib: int
    gres: tuple[Gres, ...]
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Host lists: of nodes that run no jobs now, and of those that have a feature."""

    unusable: str = ""
    by_feature: dict[str, str] = field(default_factory=dict)
    kinds: tuple[NodeKind, ...] = ()

    def with_gres(self, wanted: Gres) -> list[str] | None:
        """Host lists of nodes that have as many; None where no node has any."""
        counts = [(kind.nodes, _count(kind, wanted)) for kind in self.kinds]
        if not any(count for _, count in counts):
            return None
        return [nodes for nodes, count in counts if count >= wanted.count]


NO_NODES = Nodes()


def nodes_of(found: Sequence[NodeInfo]) -> Nodes:
    features: dict[str, list[str]] = {}
    for node in found:
        for name in node.features:
            features.setdefault(name, []).append(node.name)
    return Nodes(
        unusable=compress(node.name for node in found if not node.usable),
        by_feature={name: compress(names) for name, names in features.items()},
        kinds=tuple(_kinds(found)),
    )


def _count(kind: NodeKind, wanted: Gres) -> int:
    same = (one for one in kind.gres if one.name == wanted.name)
    return sum(one.count for one in same if wanted.kind in ("", one.kind))


def _kinds(found: Iterable[NodeInfo]) -> Iterable[NodeKind]:
    alike: dict[tuple[object, ...], list[NodeInfo]] = {}
    for node in found:
        key = (node.cpus, node.cores, node.memory_mib, node.tmp_disk_mib, node.gres)
        alike.setdefault((*key, node.features), []).append(node)
    for first, *others in alike.values():
        yield NodeKind(
            nodes=compress(node.name for node in (first, *others)),
            cpus=first.cpus,
            cores=first.cores or first.cpus,
            memory_mib=first.memory_mib,
            tmp_disk_mib=first.tmp_disk_mib,
            gres=first.gres,
            features=first.features,
        )


@cache
def names_in(text: str) -> frozenset[str]:
    """The nodes of a host list; none of one that cannot be read."""
    try:
        return frozenset(expand(text))
    except LaunchError:
        return frozenset()
