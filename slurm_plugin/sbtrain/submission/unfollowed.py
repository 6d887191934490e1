"""What of the user's own sbatch options the plan does not follow."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sbtrain.options.argv import Setting, last_value
from sbtrain_perf.request import Plan
from sbtrain_perf.wording import count


def unmet(plan: Plan, settings: Sequence[Setting]) -> Iterator[str]:
    """One line for each option that the plan does not follow."""
    from sbtrain_perf.hardware import AskedHardware

    hardware = AskedHardware.of(plan.sbatch_options)
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
    if 0 < hardware.gpus_per_node < planned:
        option = "--gres or --gpus-per-node"
        yield _slower(f"{planned} GPUs", option, hardware.gpus_per_node)
    if 0 < hardware.task_gpus < planned:
        yield _slower(f"{planned} GPUs", "--gpus-per-task", hardware.task_gpus)
    if hardware.gpus and hardware.gpus != planned * plan.nodes:
        yield (
            f"planned with {planned * plan.nodes} GPUs, all of {count(plan.nodes, 'node')}; "
            f"--gpus={last_value(settings, 'gpus')} asks for {hardware.gpus}"
        )


def _slower(planned: str, option: str, asked: int) -> str:
    return (
        f"planned as if a trainer had the {planned} of its node; {option} gives it {asked}, "
        "so it will be slower"
    )


def _number(value: str | None) -> int:
    """0 where it is none."""
    return int(value) if value and re.fullmatch(r"\d{1,9}", value, re.ASCII) else 0
