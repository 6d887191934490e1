"""The Slurm job that this attempt runs in: its id, its nodes, how often it was requeued."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmJob:
    """What Slurm said of it when the attempt began.

    job_id: as requeue takes it: N, or Array_Task, so that an array's other tasks go on.
    array_task: empty for a job that is none. nodes: those of the plan, of the whole node_list.
    started_s: Unix time at which Slurm started the job. down: nodes of attempts that left no
    end which are lost now.
    """

    job_id: str
    array_task: str = ""
    restart_count: int
    nodes: tuple[str, ...]
    node_list: str
    started_s: float
    down: tuple[str, ...] = ()
