"""Reads the queue from ``scontrol show jobs``: the one command that tells of running and
waiting jobs by a single question to slurmctld in every version (squeue asks two).

Only lines that are needed are looked at: a cluster has tens of thousands of jobs.
"""

from __future__ import annotations

import re

from sbtrain.errors import SlurmUnparsableError
from sbtrain.slurm.client import QueuedJob, task_numbers
from sbtrain.slurm.times import read_elapsed

_HOLDS = {"RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED", "RESIZING"}
_TASKS = re.compile(r"^JobId=\d+ ArrayJobId=\d+ ArrayTaskId=(\S+)")
_STATE = re.compile(r"^   JobState=(\S+) Reason=([^\s,:(]*)", re.M)
_PRIORITY = re.compile(r"^   Priority=(\d+)", re.M)
_LIMIT = re.compile(r"^   RunTime=\S+ TimeLimit=(\S+)", re.M)
_ENDS = re.compile(r"^   StartTime=\S+ EndTime=(\d+)", re.M)
_PARTITION = re.compile(r"^   Partition=(\S+)", re.M)
_NODES = re.compile(r"^   NodeList=(\S*)", re.M)
_COUNT = re.compile(r"^   NumNodes=(\d+)(K?)", re.M)


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
    jobs = (_job(block, state[1], state[2]) for block, state in states)
    return tuple(job for job in jobs if job is not None)


def _job(block: str, state: str, reason: str) -> QueuedJob | None:
    waits = state == "PENDING"
    count, partition = _COUNT.search(block), _PARTITION.search(block)
    if not (waits or state.split("+")[0] in _HOLDS) or count is None or partition is None:
        return None
    tasks = _TASKS.match(block)
    priority, limit, ends, nodes = (
        pattern.search(block) for pattern in (_PRIORITY, _LIMIT, _ENDS, _NODES)
    )
    try:
        limit_s = read_elapsed(limit[1]) if limit else None
    except ValueError:
        limit_s = None
    return QueuedJob(
        partition=partition[1],
        nodes="" if waits or not nodes or nodes[1] == "(null)" else nodes[1],
        node_count=int(count[1]) * (1024 if count[2] else 1),
        ends_s=float(ends[1]) if ends and not waits else None,
        limit_s=limit_s,
        tasks=max(len(task_numbers(tasks[1])), 1) if tasks and waits else 1,
        reason=reason if waits else "",
        priority=int(priority[1]) if priority else 0,
    )
