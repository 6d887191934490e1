"""Whom Slurm may push aside, where it goes by QOS: that is the job's, not its partition's."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sbtrain.options.argv import last_value
from sbtrain.slurm.cluster_config import BY_QOS
from sbtrain_perf.request import slurm_partition

if TYPE_CHECKING:
    from sbtrain.submission.asked import Asked
    from sbtrain.submission.queue import Known
    from sbtrain_perf.request import ClusterShape, Partition


def ranked_by_qos(asked: Asked, shape: ClusterShape, known: Known) -> ClusterShape:
    """The cluster as it is to jobs of this QOS. Where nobody tells, as to one that others push
    aside, and whose grace time is none. GraceTime of a partition does not count."""
    if known.config.preempt_type != BY_QOS:
        return shape
    account, qos = (last_value(asked.settings, name) or "" for name in ("account", "qos"))

    def ranked(one: Partition) -> Partition:
        name = slurm_partition(one.name)
        graces = known.limits.graces(name, account=account, qos=qos)
        pushed = [grace_s for grace_s in graces if grace_s is not None]
        preemptible = one.preemptible and bool(pushed or not graces)
        grace_s = float(min(pushed, default=0))
        return dataclasses.replace(one, preemptible=preemptible, grace_s=grace_s)

    return dataclasses.replace(shape, partitions=tuple(map(ranked, shape.partitions)))
