"""Nodes that a call's own options leave, where those of a cluster are not alike."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sbtrain.options.argv import last_value
from sbtrain.submission.constraint import features_of_each
from sbtrain_perf.hardware import AskedHardware

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sbtrain.slurm.node_kinds import NodeKind
    from sbtrain.submission.asked import Asked

_UNSET_MIB = 1  # RealMemory where slurm.conf says nothing


def suited(asked: Asked, kinds: Sequence[NodeKind]) -> tuple[NodeKind, ...]:
    """Those that have the features, memory, CPUs and GPUs that are asked for; where one type of
    GPU is named, with no others."""
    wanted = list(features_of_each(last_value(asked.settings, "constraint") or ""))
    hardware = AskedHardware.of(asked.request.sbatch_options)
    return tuple(_suited(kinds, wanted, hardware))


def _suited(
    kinds: Sequence[NodeKind], wanted: Sequence[Sequence[str]], hardware: AskedHardware
) -> Iterator[NodeKind]:
    types = hardware.gpu_types or frozenset()
    for kind in kinds:
        if any(set(kind.features).isdisjoint(words) for words in wanted):
            continue
        if kind.cpus < hardware.cpus:
            continue
        if _UNSET_MIB < kind.memory_mib < hardware.memory_gib * 1024:
            continue
        gpus = [one for one in kind.gres if one.name == "gpu"]
        if len(types) == 1:
            gpus = [one for one in gpus if one.kind.lower() in types]
        least = max(hardware.gpus_per_node, hardware.task_gpus, bool(types))
        if sum(one.count for one in gpus) < least:
            continue
        if len(types) == 1:
            others = [one for one in kind.gres if one.name != "gpu"]
            yield dataclasses.replace(kind, gres=(*others, *gpus))
        else:
            yield kind
