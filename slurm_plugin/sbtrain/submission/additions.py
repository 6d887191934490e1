"""What sbatch is told beyond what the user said, and why: nothing where he has said it.

A script that sbtrain starts once for every rank runs by the plan alone. One that starts its
ranks itself keeps what sbatch gives it, except for what its user left the plan to choose.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

from sbtrain.options.argv import given, last_value
from sbtrain.options.directives import named_otherwise
from sbtrain.submission.asked import GPU_OPTIONS, SWITCHES, Asked
from sbtrain_perf.request import Plan, slurm_partition

_TASKS = ("ntasks", "ntasks-per-node", "ntasks-per-gpu")
_LEAST_LEAD_S, _MOST_LEAD_S = 60, 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """narrows: stands behind the user's words on the command line, and makes of his range or
    list what was planned; others are directives, before his own."""

    word: str
    why: str
    narrows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Additions:
    each: tuple[Addition, ...]

    @property
    def directives(self) -> tuple[str, ...]:
        return tuple(one.word for one in self.each if not one.narrows)

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(one.word for one in self.each if one.narrows)


def additions(asked: Asked, plan: Plan) -> Additions:
    return Additions(each=(*_of_choices(asked, plan), *_of_running(asked, plan)))


def with_options(asked: Asked, plan: Plan, added: Additions) -> Plan:
    """The plan with every option that sbatch gets, for the job side to look up: the signal
    by its full name, however the user spelt it; and whether that side is to be quiet, and may
    slip hooks into the script's Python."""
    words = (*added.directives, *plan.sbatch_options, *added.words)
    spelt = last_value(asked.settings, "signal")
    if spelt:
        words = (*words, f"--signal={spelt}")
    quiet = given(asked.settings, "quiet")
    hooks = not asked.options.no_hooks
    return dataclasses.replace(plan, sbatch_options=words, quiet=quiet, hooks=hooks)


def lead_s(plan: Plan, limit_s: float | None) -> int:
    """Seconds before the time limit at which Slurm sends the signal: room for three
    checkpoints as predicted and half a minute to agree on a step, 60 to 600 s; at most a
    quarter of a known limit, so that every attempt gets on."""
    needed = math.ceil(30 + 3 * plan.prediction.checkpoint_s + 2 * plan.prediction.step_s)
    lead = min(max(needed, _LEAST_LEAD_S), _MOST_LEAD_S)
    return lead if limit_s is None else min(lead, math.ceil(limit_s / 4))


def _of_choices(asked: Asked, plan: Plan) -> Iterator[Addition]:
    """Partition, nodes and what a job has of them."""
    if not asked.opened:
        return
    settings, chosen = asked.settings, "chosen by the plan"
    partition = slurm_partition(plan.partition)
    if not given(settings, "partition"):
        yield Addition(word=f"--partition={partition}", why=chosen)
    elif last_value(settings, "partition") != partition:
        yield Addition(word=f"--partition={partition}", why=chosen, narrows=True)
    if not given(settings, "nodes"):
        if not (asked.launch == "script" and given(settings, "ntasks")):
            yield Addition(word=f"--nodes={plan.nodes}", why=chosen)
    elif last_value(settings, "nodes") != str(plan.nodes):
        yield Addition(word=f"--nodes={plan.nodes}", why=chosen, narrows=True)
    each = 0 if asked.launch == "script" or given(settings, *_TASKS) else plan.workers_per_node
    if each:
        one = "one task a node starts all of its ranks"
        why = one if each == 1 else "a task for each of a node's trainers"
        yield Addition(word=f"--ntasks-per-node={each}", why=why)
    if not given(settings, "exclusive", "oversubscribe", "cpus-per-task"):
        if plan.whole_nodes:
            yield Addition(word="--exclusive", why="planned with all that a node has")
        elif each:
            cores = f"--cpus-per-task={max(plan.cores_per_node // each, 1)}"
            yield Addition(word=cores, why="as many as the partition gives a job of a node")
    if plan.gpus_per_node and not given(settings, *GPU_OPTIONS):
        gres = plan.gres or f"gpu:{plan.gpus_per_node}"
        yield Addition(word=f"--gres={gres}", why="planned with the GPUs of its nodes")


def _of_running(asked: Asked, plan: Plan) -> Iterator[Addition]:
    """How the job is told to stop, comes back, writes and is called."""
    settings, ranks = asked.settings, asked.launch == "ranks"
    if plan.resumable and not given(settings, "signal"):  # others train up to the limit
        lead = lead_s(plan, asked.request.time_limit_s)
        yield Addition(
            word=f"--signal=B:{plan.preemption_signal}@{lead}",
            why="so that it saves before its time is over",
        )
    said = next((one.name for one in reversed(settings) if one.name in SWITCHES), None)
    forbidden = asked.request.forbidden_by
    why = f"by {forbidden}" if forbidden else "nothing says that it resumes"
    if said is None and plan.resumable:
        yield Addition(word="--requeue", why="it resumes from its checkpoints")
    elif said is None and (ranks or forbidden):
        yield Addition(word="--no-requeue", why=why)
    elif said == "requeue" and not plan.resumable and (ranks or forbidden):
        yield Addition(word="--no-requeue", why=why, narrows=True)
    if not given(settings, "open-mode") and plan.resumable:
        yield Addition(word="--open-mode=append", why="later attempts add to the output")
    named = given(settings, "job-name") or named_otherwise(asked.directives)
    if not (named or asked.script.from_stdin):  # which sbatch gets so, and names
        yield Addition(word=f"--job-name={asked.script.name}", why="as sbatch names it")
    if given(settings, "quiet") and given(settings, "verbose"):
        yield Addition(word="--quiet", why="sbatch refuses it with --verbose", narrows=True)
