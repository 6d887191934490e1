"""Answers one question about Slurm through pyslurm, as a program of its own: libslurm ends the
process that it runs in where it finds no configuration, holds every thread while it waits for
slurmctld, and changes how libraries are loaded after it.

Reads ``{"ask": .., "release": [year, month]}`` from standard input and writes a list of rows,
each by the keys and words of scontrol. Imports nothing of sbtrain. Whatever fails ends it with
another status than 0.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Row = dict[str, str]


def main() -> None:
    asked = json.load(sys.stdin)
    own = _version()
    if own.split(".")[:2] != [str(number) for number in asked["release"]]:
        sys.exit(f"pyslurm {own} is not made for this Slurm")
    json.dump([_said(row) for row in _QUESTIONS[asked["ask"]]()], sys.stdout)


def _version() -> str:
    """Before it is loaded: with another libslurm it may end this process."""
    found = find_spec("pyslurm")
    if found is None or found.origin is None:
        sys.exit("pyslurm is not installed")
    text = Path(found.origin).with_name("version.py").read_text()
    return text.rpartition("__version__ = ")[2].strip().strip("\"'")


def _said(row: dict[str, object]) -> Row:
    """What pyslurm leaves open is empty."""
    return {key: "" if value is None else str(value) for key, value in row.items()}


def _nodes() -> Iterable[dict[str, object]]:
    import pyslurm

    for node in pyslurm.Nodes.load().values():
        yield {
            "NodeName": node.name,
            "State": node.state,
            "Reason": node.reason,
            "Partitions": ",".join(node.partitions),
            "AvailableFeatures": ",".join(node.available_features),
            "CPUTot": node.total_cpus,
            "CPUAlloc": node.allocated_cpus,
            "RealMemory": node.real_memory or 0,
            "Sockets": node.sockets or 0,
            "CoresPerSocket": node.cores_per_socket or 0,
            "TmpDisk": node.temporary_disk or 0,
            "Gres": ",".join(f"{kind}:{count}" for kind, count in node.configured_gres.items()),
        }


def _partitions() -> Iterable[dict[str, object]]:
    import pyslurm

    for part in pyslurm.Partitions.load().values():
        yield {
            "PartitionName": part.name,
            "Nodes": part.nodes,
            "TotalNodes": part.total_nodes,
            "TotalCPUs": part.total_cpus,
            "Default": _yes(part.is_default),
            "State": part.state,
            "PriorityTier": part.priority_tier or 0,
            "PreemptMode": part.preempt_mode,
            "GraceTime": part.preemption_grace_time or 0,
            "MaxTime": _minutes(part.max_time),
            "DefaultTime": _minutes(part.default_time),
            "MaxNodes": part.max_nodes,
            "MinNodes": part.min_nodes or 0,
            "QoS": part.qos,
            "MaxCPUsPerNode": part.max_cpus_per_node,
            "MaxMemPerNode": part.max_memory_per_node,
            "DefMemPerNode": part.default_memory_per_node,
            "DefMemPerCPU": part.default_memory_per_cpu,
            "RootOnly": _yes(part.is_root_only),
            "ReqResv": _yes(part.requires_reservation),
            "AllowGroups": ",".join(part.allowed_groups),
            **_access("Accounts", part.allowed_accounts, part.denied_accounts),
            **_access("Qos", part.allowed_qos, part.denied_qos),
        }


def _access(what: str, allowed: list[str], denied: list[str]) -> dict[str, object]:
    """scontrol shows who is denied only where nobody is allowed by name."""
    by_name = allowed != ["ALL"]
    return {
        f"Allow{what}": ",".join(allowed),
        f"Deny{what}": "" if by_name else ",".join(denied),
    }


def _queue() -> Iterable[dict[str, object]]:
    import pyslurm

    for job in pyslurm.Jobs.load().values():
        ends = job.end_time
        if job.time_limit is None and ends is not None and ends > time.time():
            ends = None  # that of a job without a limit is a year away
        yield {
            "JobState": job.state,
            "Reason": job.state_reason.replace(" ", "_").partition(",")[0].partition(":")[0],
            "Partition": job.partition,
            "NodeList": job.allocated_nodes,
            "NumNodes": job.num_nodes,
            "EndTime": ends,
            "TimeLimit": _minutes(job.time_limit),
            "ArrayTaskId": job.array_tasks_waiting,
            "Priority": job.priority or 0,
        }


def _minutes(value: Any) -> str:
    return f"{value}:00" if isinstance(value, int) else "UNLIMITED"


def _yes(value: bool) -> str:
    return "YES" if value else "NO"


_QUESTIONS: dict[str, Callable[[], Iterable[dict[str, object]]]] = {
    "nodes": _nodes,
    "partitions": _partitions,
    "queue": _queue,
}

if __name__ == "__main__":
    main()
