"""Reads the queue from ``scontrol show jobs``: the one command that tells of running and
waiting jobs by a single question to slurmctld in every version (squeue asks two).

Only lines that are needed are looked at: a cluster has tens of thousands of jobs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sbtrain.errors import SlurmUnparsableError
from sbtrain.slurm.client import QueuedJob, task_numbers
from sbtrain.slurm.times import read_elapsed

_HOLDS = {"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "RESIZING"}
_STATE = re.compile(r"^   JobState=(\S+) Reason=([^\s,:(]*)", re.M)
_LINES = {
    "ArrayTaskId": re.compile(r"\AJobId=\d+ ArrayJobId=\d+ ArrayTaskId=(\S+)"),
    "Priority": re.compile(r"^   Priority=(\d+)", re.M),
    "TimeLimit": re.compile(r"^   RunTime=\S+ TimeLimit=(\S+)", re.M),
    "EndTime": re.compile(r"^   StartTime=\S+ EndTime=(\d+)", re.M),
    "Partition": re.compile(r"^   Partition=(\S+)", re.M),
    "NodeList": re.compile(r"^   NodeList=(\S*)", re.M),
    "NumNodes": re.compile(r"^   NumNodes=(\d+K?)", re.M),
}


def read_queue(text: str) -> tuple[QueuedJob, ...]:
    """Jobs that hold nodes or wait, of ``scontrol show jobs`` with times as numbers.

    Raises:
        SlurmUnparsableError: jobs are shown, and none can be read. A single one that cannot,
            such as one with line breaks in its name, is left out.
    """
    blocks = [block for part in text.split("\n\n") if (block := part.strip("\n "))]
    shown = [block for block in blocks if block.startswith("JobId=")]
    states = [(block, state) for block in shown if (state := _STATE.search(block))]
    if shown and not states:
        raise SlurmUnparsableError(
            f"cannot read what scontrol show jobs printed: {shown[0][:80]!r}"
        )
    return queue_of(
        {"JobState": state[1], "Reason": state[2], **_lines(block)}
        for block, state in states
        if _counts(state[1])
    )


def queue_of(rows: Iterable[Mapping[str, str]]) -> tuple[QueuedJob, ...]:
    """The same by the keys of ``scontrol show jobs``, with numbers as its lines above have
    them. What has no partition or number of nodes is left out."""
    return tuple(
        _job(row)
        for row in rows
        if _counts(row["JobState"]) and row.get("Partition") and row.get("NumNodes")
    )


def _counts(state: str) -> bool:
    return state == "PENDING" or state.split("+")[0] in _HOLDS


def _lines(block: str) -> dict[str, str]:
    found = ((name, line.search(block)) for name, line in _LINES.items())
    return {name: value[1] for name, value in found if value}


def _job(row: Mapping[str, str]) -> QueuedJob:
    waits = row["JobState"] == "PENDING"
    nodes, count = row.get("NodeList", ""), row["NumNodes"]
    tasks, ends = row.get("ArrayTaskId"), row.get("EndTime")
    try:
        limit_s = read_elapsed(row.get("TimeLimit", ""))
    except ValueError:
        limit_s = None
    return QueuedJob(
        partition=row["Partition"],
        nodes="" if waits or nodes == "(null)" else nodes,
        node_count=int(count.removesuffix("K")) * (1024 if count.endswith("K") else 1),
        ends_s=float(ends) if ends and not waits else None,
        limit_s=limit_s,
        tasks=max(len(task_numbers(tasks)), 1) if tasks and waits else 1,
        reason=row["Reason"] if waits else "",
        priority=int(row.get("Priority", "0")),
    )
