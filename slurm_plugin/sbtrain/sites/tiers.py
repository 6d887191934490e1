"""Which partitions' jobs push others aside, by Slurm's priority tiers."""

from __future__ import annotations

from collections.abc import Sequence

from sbtrain.slurm.client import PartitionInfo
from sbtrain.slurm.node_kinds import names_in

_NO_PREEMPTION = {"OFF", "GANG", "WITHIN", ""}


def pushed_aside(partitions: Sequence[PartitionInfo], preempt_type: str) -> frozenset[str]:
    """Names of partitions whose jobs Slurm takes nodes from for those of others. Where it goes
    by QOS, of all whose jobs may be preempted: their tiers do not tell then."""
    weak = [one for one in partitions if may_be_pushed(one)]
    if preempt_type == "qos":
        return frozenset(one.name for one in weak)
    return frozenset(
        one.name for one in weak if any(_above(other, one) for other in partitions)
    )


def pushing_aside(partitions: Sequence[PartitionInfo]) -> frozenset[str]:
    """Names of partitions whose jobs Slurm lets take nodes from running jobs of another one:
    of a higher tier, on some of the nodes of one that may be preempted."""
    weak = [one for one in partitions if may_be_pushed(one)]
    return frozenset(
        one.name for one in partitions if any(_above(one, other) for other in weak)
    )


def may_be_pushed(partition: PartitionInfo) -> bool:
    """Its jobs make way for those of a higher tier."""
    return bool(set(partition.preempt_mode.split(",")) - _NO_PREEMPTION)


def _above(one: PartitionInfo, other: PartitionInfo) -> bool:
    if one.priority_tier <= other.priority_tier:
        return False
    return not names_in(one.nodes).isdisjoint(names_in(other.nodes))
