"""What is said at submission of a call that is taken otherwise than its user may expect: of
the script, which sbtrain starts once for every role, and of options that the plan does not
follow. One line each, for stderr."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence

from sbtrain.options.argv import CommandLine, Setting, last_value
from sbtrain.options.flag_table import FLAGS
from sbtrain.options.unknown_options import unknown_option_notes
from sbtrain.scripts.frameworks import CONVENTIONS
from sbtrain.scripts.layouts import layouts_of
from sbtrain.submission.asked import Asked
from sbtrain_perf.request import Plan
from sbtrain_perf.wording import count


def script_notes(
    asked: Asked, line: CommandLine, *, own: Container[str] = FLAGS, who: str = "sbtrain"
) -> Iterator[str]:
    """What was known before planning.

    Args:
        own: options of the command `who`, without their leading dashes.
    """
    said = {name for name, _ in (*asked.directives.train, *line.train)}
    if asked.launch == "ranks":
        yield from _layout_notes(asked, by_user="train-layout" in said)
    if asked.options.data and not asked.request.data.total_bytes:
        yield f"--train-data holds nothing yet: {', '.join(asked.request.data.paths)}"
    yield from unknown_option_notes(asked.settings)
    for word in line.script_args:
        name = word.removeprefix("--").partition("=")[0]
        if word.startswith("--") and name in own:
            yield (
                f"--{name} stands behind the script, so the script gets it; write it before "
                f"{line.script}, where it is meant for {who}"
            )


def launch_note(asked: Asked, *, each: int = 1) -> str:
    """How the script is run, and why; --train-launch says it otherwise. each: trainers of a
    node."""
    shown, by = asked.script.shown, ""
    if asked.options.launch:
        by = f" (--train-launch={asked.options.launch})"
    if asked.launch == "ranks":
        several = f", {each} on each node" if each > 1 else ""
        follows = f"it follows {CONVENTIONS[asked.follows.framework]} ({asked.follows.why})"
        return f"{shown} is started by sbtrain, once for every rank{several}{by}: {follows}"
    line = asked.launches[0] if asked.launches else None
    why = (
        f"line {line.number} starts its processes ({line.program})"
        if line
        else ("no line in it is known to start processes on other nodes")
    )
    return f"{shown} runs once, on the first node, as with sbatch: {why}{by}"


def _layout_notes(asked: Asked, *, by_user: bool) -> Iterator[str]:
    """What the script made of the layout, or what the user's layout makes of the script."""
    script, layout = asked.script, asked.options.layout
    found = layouts_of(script)
    if not by_user and layout == "allreduce" and not found.plain:
        yield (
            f"planned without parameter servers: {script.shown} {found.why}; "
            "--train-layout=auto weighs them too"
        )
    elif not by_user and layout == "ps":
        yield (
            f"planned with parameter servers: {script.shown} {found.why}; "
            "--train-layout=auto weighs all-reduce too"
        )
    elif by_user and layout == "ps" and found.layout == "allreduce":
        does = "its parameter servers will run it as the workers do"
        if script.uses_sbtrain:
            does = (
                "in join() its servers and workers will serve TensorFlow, and one rank trains"
            )
        yield f"{script.shown} {found.why}: {does}"


def plan_notes(plan: Plan, settings: Sequence[Setting]) -> Iterator[str]:
    """The options that the plan does not follow."""
    if plan.launch == "script":
        return
    from sbtrain_perf.hardware import AskedHardware

    hardware = AskedHardware.of(plan.sbatch_options)
    tasks = _number(last_value(settings, "ntasks"))
    if tasks and tasks != plan.workers:
        yield (
            f"--ntasks={tasks} is not what the plan has: {count(plan.workers, 'trainer')}, on "
            f"{count(plan.nodes, 'node')}; -N and --ntasks-per-node say how many each node runs"
        )
    planned = plan.gpus_per_node
    if not planned:
        cores = _number(last_value(settings, "cpus-per-task")) * plan.workers_per_node
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
        f"planned as if the trainers of a node had its {planned}; {option} gives them "
        f"{asked}, so they will be slower"
    )


def _number(value: str | None) -> int:
    """0 where it is none."""
    return int(value) if value and re.fullmatch(r"\d{1,9}", value, re.ASCII) else 0
