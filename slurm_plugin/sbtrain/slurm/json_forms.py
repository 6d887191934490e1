"""Reads the JSON of squeue, sinfo and scontrol, in the shapes of three generations.

Slurm 22.05 writes plain numbers, one word for a state and a raw wait status; from 23.02 a
number is ``{"set": .., "infinite": .., "number": ..}``, a state is a list of words and an
exit code an object. Some fields stay plain in every version, so each reader takes both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Never, cast

from sbtrain.errors import SlurmUnparsableError
from sbtrain.slurm.client import JobInfo, NodeInfo
from sbtrain.slurm.gres import read_gres
from sbtrain.slurm.states import read_state

_INFINITE = 4294967280  # from here up, Slurm's 32-bit words for "infinite" and "no value"


def read_jobs(text: str, *, command: str) -> tuple[JobInfo, ...]:
    """Jobs of squeue --json or scontrol show job --json.

    Raises:
        SlurmUnparsableError: with the command and the place that does not fit.
    """
    return tuple(_job(row) for row in _rows(text, "jobs", command))


def read_nodes(text: str, *, command: str) -> tuple[NodeInfo, ...]:
    """Nodes of scontrol show nodes --json, or of sinfo --json before 23.02.

    Raises:
        SlurmUnparsableError: with the command and the place that does not fit.
    """
    return tuple(_node(row) for row in _rows(text, "nodes", command))


class _Row:
    """One object of a JSON document, read by key and kind; refusals name the place."""

    __slots__ = ("_command", "_data", "_place")

    def __init__(self, data: Mapping[str, object], place: str, command: str) -> None:
        self._data = data
        self._place = place
        self._command = command

    def refuse(self, key: str, expected: str) -> Never:
        found = json.dumps(self._data.get(key, "nothing"))[:60]
        raise SlurmUnparsableError(
            f"{self._command} wrote {found} at {self._place}.{key}, expected {expected}"
        )

    def text(self, key: str) -> str:
        value = self._data.get(key)
        if value is None:
            return ""
        return value if isinstance(value, str) else self.refuse(key, "a string")

    def number(self, key: str) -> float | None:
        """None where Slurm says "not set"; infinity where it says "infinite"."""
        value = self._data.get(key)
        if isinstance(value, Mapping):
            if value.get("infinite") is True:
                return math.inf
            if value.get("set") is not True:
                return None
            value = value.get("number")
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(key, "a number")
        return math.inf if value >= _INFINITE else float(value)

    def count(self, key: str) -> int:
        """A finite number; 0 where it is not set."""
        value = self.number(key)
        if value is None:
            return 0
        return self.refuse(key, "a finite number") if math.isinf(value) else int(value)

    def identifier(self, key: str) -> int | None:
        """Numbers that are 0 where there is none."""
        return self.count(key) or None

    def moment(self, key: str) -> float | None:
        """Seconds since the epoch; Slurm writes 0 for a time that is not known."""
        value = self.number(key)
        return None if not value or math.isinf(value) else value

    def flag(self, key: str) -> bool:
        value = self._data.get(key)
        if isinstance(value, int | float) and value in (0, 1):
            return bool(value)
        return self.refuse(key, "true or false")

    def words(self, key: str) -> tuple[str, ...]:
        """A list of strings, one string, or strings between commas."""
        value = self._data.get(key)
        if isinstance(value, str):
            return tuple(word for word in value.split(",") if word)
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return tuple(cast("list[str]", value))
        return () if value is None else self.refuse(key, "words")

    def row(self, key: str) -> _Row | None:
        value = self._data.get(key)
        if not isinstance(value, Mapping):
            return None
        return _Row(value, f"{self._place}.{key}", self._command)


def _rows(text: str, key: str, command: str) -> list[_Row]:
    try:
        document = json.loads(text)
    except ValueError as error:
        shown = " ".join(text.split())[:60]
        raise SlurmUnparsableError(
            f"{command} wrote no JSON but {shown!r} ({error})", stdout=text
        ) from None
    values = document.get(key) if isinstance(document, dict) else None
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise SlurmUnparsableError(f"{command} wrote JSON without a list {key!r}", stdout=text)
    return [_Row(value, f"{key}[{place}]", command) for place, value in enumerate(values)]


def _job(row: _Row) -> JobInfo:
    number = row.identifier("job_id") or row.refuse("job_id", "a job id")
    array_id, het_id = row.identifier("array_job_id"), row.identifier("het_job_id")
    task, tasks = row.number("array_task_id"), row.text("array_task_string")
    if task is not None and array_id is not None:
        tasks = str(int(task))
    offset = row.count("het_job_offset") if het_id is not None else None
    states = row.words("job_state")
    state, below = read_state(states)
    exit_code, exit_signal = _exit(row)
    limit_min = row.number("time_limit")
    return JobInfo(
        job_id=_written_id(number, array_id, tasks, task is not None, het_id, offset),
        number=number,
        array_job_id=array_id,
        array_tasks=tasks if array_id is not None else "",
        het_job_id=het_id,
        het_offset=offset,
        name=row.text("name"),
        comment=row.text("comment"),
        user=row.text("user_name"),
        user_id=row.count("user_id"),
        partition=row.text("partition"),
        state=state,
        state_text="+".join(states),
        underlying=below,
        reason=row.text("state_reason"),
        nodes=row.text("nodes"),
        node_count=row.count("node_count"),
        restarts=row.count("restart_cnt"),
        requeue=row.flag("requeue"),
        submit_time_s=row.moment("submit_time"),
        eligible_time_s=row.moment("eligible_time"),
        start_time_s=row.moment("start_time"),
        end_time_s=row.moment("end_time"),
        preempt_time_s=row.moment("preempt_time"),
        time_limit_s=(
            None if limit_min is None or math.isinf(limit_min) else int(limit_min * 60)
        ),
        exit_code=exit_code,
        exit_signal=exit_signal,
    )


def _written_id(
    number: int,
    array_id: int | None,
    tasks: str,
    one_task: bool,
    het_id: int | None,
    offset: int | None,
) -> str:
    if array_id is not None and tasks:
        return f"{array_id}_{tasks}" if one_task else f"{array_id}_[{tasks}]"
    return str(number) if het_id is None else f"{het_id}+{offset}"


def _exit(row: _Row) -> tuple[int, int]:
    """Exit code and signal, from an object or from a raw wait status."""
    code = row.row("exit_code")
    if code is None:
        status = row.count("exit_code")
        return status >> 8 & 0xFF, status & 0x7F
    signal = code.row("signal")
    ended_by = signal and (signal.number("id") or signal.number("signal_id"))
    return code.count("return_code"), int(ended_by or 0)


def _node(row: _Row) -> NodeInfo:
    states = (*row.words("state"), *row.words("state_flags"))
    return NodeInfo(
        name=row.text("name"),
        states=frozenset(word.upper() for word in states),
        reason=row.text("reason"),
        partitions=row.words("partitions"),
        features=row.words("features"),
        cpus=row.count("cpus"),
        cpus_allocated=row.count("alloc_cpus"),
        memory_mib=row.count("real_memory"),
        gres=read_gres(row.text("gres")),
    )
