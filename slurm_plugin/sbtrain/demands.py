"""What sbatch's options ask of a node: partitions that cannot give it, and what of it the
plan does not follow."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from sbtrain.argv import Setting, last_value
from sbtrain_perf.request import Partition, Plan
from sbtrain_perf.wording import count

_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")  # of these the last one given counts
DEMANDING = ("gres", "gpus", "gpus-per-node", "gpus-per-task", *_MEMORY)
_MIB = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2}
_GRES_GPU = re.compile(r"(?:gres[/:])?gpu(?:[:=]([A-Za-z_][^:=]*))?(?:[:=](\d{1,9}))?(?:\(.*)?")
_GPUS = re.compile(r"(?:[A-Za-z_][^:=]*[:=])?(\d{1,9})")


def lacking(
    partition: Partition, settings: Sequence[Setting], *, most_nodes: int | None = None
) -> str | None:
    """Why the nodes of a partition cannot give what is asked of each; None where they can,
    or where the options are not of a form that sbtrain reads.

    Args:
        most_nodes: that the job may have; None: as many as the partition gives.
    """
    if partition.gpu is not None:
        held = partition.gpus_per_node
        for name, asked in _gpus_of_a_node(settings):
            if asked > held:
                has = f"not all its nodes have more than {held}: name a type of GPU"
                return f"{asked} GPUs a node were asked for (--{name}), " + (
                    has if partition.mix else f"it has {held}"
                )
        nodes = min(partition.nodes, partition.max_nodes_per_job)
        most = held * (nodes if most_nodes is None else min(nodes, most_nodes))
        total = _gpus(last_value(settings, "gpus"))
        if total is not None and total > most:
            return f"{total} GPUs were asked for (--gpus), it gives one job {most}"
    memory = _memory_gib(settings)
    if memory is not None and memory[1] > partition.memory_gib_per_node:
        name, gib = memory
        return (
            f"{round(gib, 1):,.10g} GiB a node were asked for (--{name}), it has "
            f"{partition.memory_gib_per_node:,.10g}"
        )
    return None


def fewest_nodes(plan: Plan, settings: Sequence[Setting]) -> int:
    """Nodes of the plan's kind that hold the GPUs of --gpus; 1 where none are asked for."""
    total = _gpus(last_value(settings, "gpus"))
    if total is None or not plan.gpus_per_node:
        return 1
    return max(math.ceil(total / plan.gpus_per_node), 1)


def unmet(plan: Plan, settings: Sequence[Setting]) -> Iterator[str]:
    """One line for each option that the plan does not follow."""
    per_node = _number(last_value(settings, "ntasks-per-node"))
    if per_node is not None and per_node > 1:
        yield (
            f"--ntasks-per-node={per_node} starts no more trainers: sbtrain starts one on "
            "each node, with all that the job has there"
        )
    tasks = _number(last_value(settings, "ntasks"))
    if tasks is not None and tasks != plan.nodes * (per_node or 1):
        yield (
            f"--ntasks={tasks} bounds the number of nodes and no more: sbtrain starts one "
            f"trainer on each node, here {plan.nodes}"
        )
    if not plan.gpus_per_node:
        cores = _number(last_value(settings, "cpus-per-task"))
        if cores is not None and cores * (per_node or 1) < plan.cores_per_node:
            yield (
                f"planned as if a trainer had the {plan.cores_per_node} cores of its node; "
                f"--cpus-per-task={cores} gives it {cores * (per_node or 1)}, so it will be "
                "slower"
            )
        return
    planned = plan.gpus_per_node
    for name, asked in _gpus_of_a_node(settings):
        if asked < planned:
            yield (
                f"planned as if a trainer had the {planned} GPUs of its node; "
                f"--{name}={last_value(settings, name)} gives it {asked}, so it will be slower"
            )
    total = _gpus(last_value(settings, "gpus"))
    if total is not None and total != planned * plan.nodes:
        yield (
            f"planned with {planned * plan.nodes} GPUs, all of {count(plan.nodes, 'node')}; "
            f"--gpus={last_value(settings, 'gpus')} asks for {total}"
        )


def _gpus_of_a_node(settings: Sequence[Setting]) -> Iterator[tuple[str, int]]:
    """What each option that says so asks for, by the option's name."""
    gres = last_value(settings, "gres")
    if gres is not None:
        found = [_GRES_GPU.fullmatch(part.strip()) for part in gres.split(",")]
        asked = [int(one[2] or 1) for one in found if one]
        if asked:
            yield "gres", sum(asked)
    of_node = _gpus(last_value(settings, "gpus-per-node"))
    if of_node is not None:
        yield "gpus-per-node", of_node
    of_task = _gpus(last_value(settings, "gpus-per-task"))
    if of_task is not None:
        yield "gpus-per-task", of_task * _tasks(settings)


def _gpus(value: str | None) -> int | None:
    """`3`, `v100:3` or several with commas; None where it is none of these."""
    if value is None:
        return None
    found = [_GPUS.fullmatch(part.strip()) for part in value.split(",")]
    return sum(int(one[1]) for one in found if one) if all(found) else None


def _memory_gib(settings: Sequence[Setting]) -> tuple[str, float] | None:
    """Memory of a node, and the option that asks for it."""
    said = next((one for one in reversed(settings) if one.name in _MEMORY), None)
    if said is None:
        return None
    found = re.fullmatch(r"(\d{1,15})([KMGT]?)B?", (said.value or "").upper(), re.ASCII)
    if found is None:
        return None
    times = 1
    if said.name == "mem-per-cpu":
        times = _tasks(settings) * (_number(last_value(settings, "cpus-per-task")) or 1)
    elif said.name == "mem-per-gpu":
        gpus = [asked for _, asked in _gpus_of_a_node(settings)]
        if not gpus:
            return None
        times = max(gpus)
    return said.name, times * int(found[1]) * _MIB[found[2]] / 1024


def _tasks(settings: Sequence[Setting]) -> int:
    return _number(last_value(settings, "ntasks-per-node")) or 1


def _number(value: str | None) -> int | None:
    return int(value) if value and re.fullmatch(r"\d{1,9}", value, re.ASCII) else None
