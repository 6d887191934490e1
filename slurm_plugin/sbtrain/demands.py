"""What sbatch's options ask of nodes beyond what the planner itself reads of them: partitions
that cannot give it, and what of it the plan does not follow."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from sbtrain.argv import Setting, last_value
from sbtrain.submission import MEMORY_OPTIONS
from sbtrain_perf.request import Partition, Plan, Request
from sbtrain_perf.wording import count

DEMANDING = ("gpus", "gpus-per-task", "mem-per-cpu", "mem-per-gpu")
_GIB = {"": 1 / 1024, "K": 1 / 1024**2, "M": 1 / 1024, "G": 1.0, "T": 1024.0}
_GPUS = re.compile(r"(?:[A-Za-z_][^:=]*[:=])?(\d{1,9})", re.ASCII)


def lacking(partition: Partition, request: Request, settings: Sequence[Setting]) -> str | None:
    """Why the nodes of a partition cannot give what is asked; None where they can, or where
    the options are not of a form that sbtrain reads.

    Args:
        settings: every option of sbatch, wherever it was written.
    """
    held = partition.gpus_per_node
    if partition.gpu is not None:
        of_task = _gpus_of_tasks(settings)
        if of_task > held:
            return f"{of_task} GPUs a node were asked for (--gpus-per-task), it has {held}"
        total = _gpus(last_value(settings, "gpus"))
        limits = (partition.nodes, partition.max_nodes_per_job, request.nodes.high)
        most = held * min(limit for limit in limits if limit is not None)
        if total > most:
            return f"{total} GPUs were asked for (--gpus), it gives one job {most}"
    name, gib = _memory_gib(request, settings)
    if gib > partition.memory_gib_per_node:
        return (
            f"{round(gib, 1):,.10g} GiB a node were asked for (--{name}), it has "
            f"{partition.memory_gib_per_node:,.10g}"
        )
    return None


def fewest_nodes(plan: Plan, settings: Sequence[Setting]) -> int:
    """Nodes of the plan's kind that hold the GPUs of --gpus; 1 where none are asked for."""
    if not plan.gpus_per_node:
        return 1
    return max(math.ceil(_gpus(last_value(settings, "gpus")) / plan.gpus_per_node), 1)


def unmet(plan: Plan, settings: Sequence[Setting]) -> Iterator[str]:
    """One line for each option that the plan does not follow."""
    from sbtrain_perf.limits import asked_gpus_per_node

    per_node = _number(last_value(settings, "ntasks-per-node"))
    if per_node > 1:
        yield (
            f"--ntasks-per-node={per_node} starts no more trainers: sbtrain starts one on "
            "each node, with all that the job has there"
        )
    tasks = _number(last_value(settings, "ntasks"))
    if tasks and tasks != plan.nodes * max(per_node, 1):
        yield (
            f"--ntasks={tasks} bounds the number of nodes and no more: sbtrain starts one "
            f"trainer on each node, here {plan.nodes}"
        )
    planned = plan.gpus_per_node
    if not planned:
        cores = _number(last_value(settings, "cpus-per-task")) * max(per_node, 1)
        if 0 < cores < plan.cores_per_node:
            yield _slower(f"{plan.cores_per_node} cores", "--cpus-per-task", cores)
        return
    asked = asked_gpus_per_node(plan.sbatch_options)
    if 0 < asked < planned:
        yield _slower(f"{planned} GPUs", "--gres or --gpus-per-node", asked)
    of_task = _gpus_of_tasks(settings)
    if 0 < of_task < planned:
        yield _slower(f"{planned} GPUs", "--gpus-per-task", of_task)
    total = _gpus(last_value(settings, "gpus"))
    if total and total != planned * plan.nodes:
        yield (
            f"planned with {planned * plan.nodes} GPUs, all of {count(plan.nodes, 'node')}; "
            f"--gpus={last_value(settings, 'gpus')} asks for {total}"
        )


def _slower(planned: str, option: str, asked: int) -> str:
    return (
        f"planned as if a trainer had the {planned} of its node; {option} gives it {asked}, "
        "so it will be slower"
    )


def _gpus_of_tasks(settings: Sequence[Setting]) -> int:
    """GPUs of a node's tasks together, as --gpus-per-task says; 0 where it is not given."""
    return _gpus(last_value(settings, "gpus-per-task")) * _tasks(settings)


def _gpus(value: str | None) -> int:
    """`3`, `v100:3` or several with commas; 0 where it is none of these."""
    found = [_GPUS.fullmatch(part.strip()) for part in (value or "").split(",")]
    return sum(int(one[1]) for one in found if one) if all(found) else 0


def _memory_gib(request: Request, settings: Sequence[Setting]) -> tuple[str, float]:
    """The option that asks for memory by core or GPU, and what it comes to on a node; 0
    where there is none, or nothing says how many of them."""
    from sbtrain_perf.limits import asked_gpus_per_node

    said = next((one for one in reversed(settings) if one.name in MEMORY_OPTIONS), None)
    found = re.fullmatch(r"(\d{1,15})([KMGT]?)B?", ((said and said.value) or "").upper())
    if said is None or found is None or said.name == "mem":
        return "", 0.0
    if said.name == "mem-per-cpu":
        times = _tasks(settings) * max(_number(last_value(settings, "cpus-per-task")), 1)
    else:
        asked = asked_gpus_per_node(request.sbatch_options)
        times = max(asked, _gpus_of_tasks(settings))
    return said.name, times * int(found[1]) * _GIB[found[2]]


def _tasks(settings: Sequence[Setting]) -> int:
    return max(_number(last_value(settings, "ntasks-per-node")), 1)


def _number(value: str | None) -> int:
    """0 where it is none."""
    return int(value) if value and re.fullmatch(r"\d{1,9}", value, re.ASCII) else 0
