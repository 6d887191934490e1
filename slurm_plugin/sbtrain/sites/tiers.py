"""Which partitions' jobs push others aside, by Slurm's priority tiers."""

from __future__ import annotations

from collections.abc import Sequence

from sbtrain.slurm.client import PartitionInfo
from sbtrain.slurm.cluster_config import BY_QOS, BY_TIERS
from sbtrain.slurm.node_kinds import names_in

_NO_PREEMPTION = {"OFF", "GANG", "WITHIN", ""}


def pushed_aside(partitions: Sequence[PartitionInfo], preempt_type: str) -> frozenset[str]:
    """Names of partitions whose jobs Slurm takes nodes from for those of others. Where it goes
    by QOS, of all: neither tiers nor PreemptMode of partitions have a part in it then."""
    if preempt_type == BY_QOS:
        return frozenset(one.name for one in partitions)
    if preempt_type != BY_TIERS:
        return frozenset()
    weak = [one for one in partitions if may_be_pushed(one)]
    above = {
        tier: _nodes([one for one in partitions if one.priority_tier > tier])
        for tier in {one.priority_tier for one in weak}
    }
    return frozenset(
        one.name for one in weak if not names_in(one.nodes).isdisjoint(above[one.priority_tier])
    )


def pushing_aside(partitions: Sequence[PartitionInfo], preempt_type: str) -> frozenset[str]:
    """Names of partitions whose jobs Slurm lets take nodes from running jobs of another one:
    of a higher tier, on some of the nodes of one that may be preempted."""
    if preempt_type != BY_TIERS:
        return frozenset()
    weak = [one for one in partitions if may_be_pushed(one)]
    below = {
        tier: _nodes([one for one in weak if one.priority_tier < tier])
        for tier in {one.priority_tier for one in partitions}
    }
    return frozenset(
        one.name
        for one in partitions
        if not names_in(one.nodes).isdisjoint(below[one.priority_tier])
    )


def may_be_pushed(partition: PartitionInfo) -> bool:
    """Its jobs make way for those of a higher tier."""
    return bool(set(partition.preempt_mode.split(",")) - _NO_PREEMPTION)


def _nodes(partitions: Sequence[PartitionInfo]) -> frozenset[str]:
    return frozenset().union(*(names_in(one.nodes) for one in partitions))
