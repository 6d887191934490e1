"""How the Slurm in memory works: nodes, a queue, and time that passes between calls.

A job takes one CPU on each of its nodes and starts in order of submission. It runs as long
as the ``sleep N`` lines of its script say and ends with the number of its last ``exit N``.
A job that is ended is COMPLETING for as long as its processes take to die.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sbtrain.errors import SlurmRejectedError
from sbtrain.options.argv import Setting, given, last_value, split_words
from sbtrain.options.directives import read_directives
from sbtrain.slurm.client import (
    Gres,
    HistoryRow,
    JobInfo,
    NodeInfo,
    PartitionInfo,
    QueuedJob,
    Submission,
)
from sbtrain.slurm.states import JobState
from sbtrain.slurm.times import read_time_limit
from sbtrain.slurm.token import marked_comment
from sbtrain_jobs.hostlist import compress, expand

ALIVE = frozenset({JobState.RUNNING, JobState.COMPLETING})
_RESTARTS = frozenset({JobState.PREEMPTED, JobState.NODE_FAIL, JobState.REQUEUED})


def fake_node(name: str, *, cpus: int = 4, gpus: int = 0) -> NodeInfo:
    return NodeInfo(
        name=name,
        states=frozenset({"IDLE"}),
        reason="",
        partitions=(),
        features=(),
        cpus=cpus,
        cpus_allocated=0,
        memory_mib=16_000,
        gres=(Gres(name="gpu", kind="k80", count=gpus),) if gpus else (),
    )


def fake_partition(
    name: str, nodes: str, *, default: bool = False, tier: int = 1, preempt_mode: str = "OFF"
) -> PartitionInfo:
    count = len(expand(nodes))
    return PartitionInfo(
        name=name,
        nodes=nodes,
        node_count=count,
        cpu_count=4 * count,
        default=default,
        up=True,
        priority_tier=tier,
        preempt_mode=preempt_mode,
        grace_s=15 if preempt_mode == "REQUEUE" else 0,
        max_time_s=7 * 86_400,
        default_time_s=30 * 60,
        max_nodes=None,
    )


@dataclass(slots=True, kw_only=True)
class FakeJob:
    """A job, what its script does, and what it turns into next, and when."""

    info: JobInfo
    partition: PartitionInfo
    runs_s: float
    exits_with: int
    held: bool
    next_state: JobState | None = None
    next_at_s: float = 0.0


class FakeCluster:
    """Every method is told the time. history: one row for each run that has ended."""

    def __init__(
        self,
        *,
        nodes: Sequence[NodeInfo],
        partitions: Sequence[PartitionInfo],
        user: str,
        hold_s: float,
        kill_wait_s: float,
    ) -> None:
        self._nodes = {node.name: node for node in nodes}
        self.partitions = {partition.name: partition for partition in partitions}
        self._user = user
        self._hold_s = hold_s
        self._kill_wait_s = kill_wait_s
        self._numbers = itertools.count(1)
        self._records: list[FakeJob] = []
        self.history: list[HistoryRow] = []

    def nodes(self) -> tuple[NodeInfo, ...]:
        return tuple(self._shown(node) for node in self._nodes.values())

    def lost(self, names: Sequence[str]) -> bool:
        return any(self._nodes[name].lost for name in names)

    def place(self, settings: Sequence[Setting]) -> tuple[PartitionInfo, int]:
        """The partition of a request and the number of its nodes.

        Raises:
            SlurmRejectedError: in sbatch's words.
        """
        default = next((p.name for p in self.partitions.values() if p.default), "")
        name = last_value(settings, "partition") or default
        if name not in self.partitions:
            raise SlurmRejectedError(
                f"sbatch refused: invalid partition specified: {name}; "
                "Batch job submission failed: Invalid partition name specified"
            )
        partition = self.partitions[name]
        count = int((last_value(settings, "nodes") or "1").partition("-")[0])
        if count > partition.node_count:
            raise SlurmRejectedError(
                "sbatch refused: Requested node configuration is not available"
            )
        return partition, count

    def spend_number(self) -> int:
        return next(self._numbers)

    def accept(self, submission: Submission, *, at_s: float) -> int:
        """Queue a job, or every task of an array; returns the number that sbatch prints."""
        settings = settings_of(submission)
        partition, count = self.place(settings)
        text = script_of(submission)
        limit = last_value(settings, "time")
        name = submission.script.name if submission.script else "sbatch"
        first = self.spend_number()
        for place, task in enumerate(_tasks(last_value(settings, "array"))):
            number = first if place == 0 else self.spend_number()
            info = JobInfo(
                job_id=str(number) if task is None else f"{first}_{task}",
                number=number,
                array_job_id=None if task is None else first,
                array_tasks="" if task is None else str(task),
                name=last_value(settings, "job-name") or name,
                comment=marked_comment(submission) or last_value(settings, "comment") or "",
                user=self._user,
                user_id=1000,
                partition=partition.name,
                state=JobState.PENDING,
                state_text="PENDING",
                reason="None",
                nodes="",
                node_count=count,
                restarts=0,
                requeue=not given(settings, "no-requeue"),
                submit_time_s=at_s,
                eligible_time_s=at_s,
                start_time_s=None,
                end_time_s=None,
                preempt_time_s=None,
                time_limit_s=(
                    partition.default_time_s if limit is None else read_time_limit(limit)
                ),
                exit_code=0,
                exit_signal=0,
            )
            self._records.append(
                FakeJob(
                    info=info,
                    partition=partition,
                    runs_s=sum(map(float, re.findall(r"(?m)^sleep ([\d.]+)", text))),
                    exits_with=int((re.findall(r"(?m)^exit (\d+)", text) or ["0"])[-1]),
                    held=given(settings, "hold"),
                )
            )
        return first

    def advance(self, now_s: float) -> list[FakeJob]:
        """Bring every job up to now; start what fits."""
        for record in self._records:
            if record.next_state is not None and now_s >= record.next_at_s:
                self._settle(record, record.next_state, at_s=record.next_at_s)
        for record in self._records:
            if record.info.state == JobState.PENDING:
                self._start(record, now_s)
        return self._records

    def end(self, record: FakeJob, state: JobState, *, at_s: float) -> None:
        """End a job, so that it comes to `state` once its processes have died."""
        restart = state in _RESTARTS and record.info.requeue
        alive = record.info.state in ALIVE
        record.info = replace(
            record.info,
            state=JobState.COMPLETING,
            state_text="COMPLETING",
            reason="NodeDown" if state == JobState.NODE_FAIL and not restart else "None",
            restarts=record.info.restarts + restart,
            preempt_time_s=None if restart else record.info.preempt_time_s,
            end_time_s=at_s,
        )
        record.next_state = state
        record.next_at_s = at_s + (self._kill_wait_s if alive else 0.0)
        self.advance(at_s)

    def preempt(self, record: FakeJob, *, at_s: float, grace_s: float) -> None:
        record.info = replace(record.info, preempt_time_s=at_s, end_time_s=at_s + grace_s)
        record.next_state, record.next_at_s = JobState.PREEMPTED, at_s + grace_s

    def lose_node(self, name: str, *, at_s: float) -> None:
        states = frozenset({"DOWN", "NOT_RESPONDING"})
        self._nodes[name] = replace(self._nodes[name], states=states)
        for record in self._records:
            names = expand(record.info.nodes)
            if record.info.state == JobState.RUNNING and name in names:
                record.info = replace(
                    record.info, nodes=compress(node for node in names if node != name)
                )
                self.end(record, JobState.NODE_FAIL, at_s=at_s)

    def _start(self, record: FakeJob, now_s: float) -> None:
        info, reason = record.info, "None"
        usable = expand(record.partition.nodes)
        free = [
            node.name
            for node in self.nodes()
            if node.name in usable and node.usable and node.cpus_allocated < node.cpus
        ]
        if record.held:
            reason = "JobHeldUser"
        elif info.eligible_time_s is not None and now_s < info.eligible_time_s:
            reason = "BeginTime"
        elif len(free) < info.node_count:
            reason = "Resources"
        record.info = replace(record.info, reason=reason)
        if reason != "None":
            return
        limit_s = float("inf") if info.time_limit_s is None else info.time_limit_s
        record.info = replace(
            record.info,
            state=JobState.RUNNING,
            state_text="RUNNING",
            nodes=compress(free[: info.node_count]),
            start_time_s=now_s,
            end_time_s=None if info.time_limit_s is None else now_s + limit_s,
        )
        own_end = JobState.FAILED if record.exits_with else JobState.COMPLETED
        record.next_state = own_end if record.runs_s <= limit_s else JobState.TIMEOUT
        record.next_at_s = now_s + min(record.runs_s, limit_s)

    def _settle(self, record: FakeJob, state: JobState, *, at_s: float) -> None:
        """A run is over: write its history, and put the job back if it may restart."""
        counted = record.info.state == JobState.COMPLETING  # end() has counted the restart
        record.next_state = None
        record.info = replace(
            record.info,
            end_time_s=at_s,
            state=state,
            state_text=state.upper(),
            exit_code=record.exits_with if state == JobState.FAILED else 0,
        )
        self.history.append(history_row(record.info, at_s=at_s))
        if state not in _RESTARTS or not record.info.requeue:
            return
        record.info = replace(
            record.info,
            state=JobState.PENDING,
            state_text="PENDING",
            reason="BeginTime",
            nodes="",
            restarts=record.info.restarts + (not counted),
            submit_time_s=at_s,
            eligible_time_s=at_s + self._hold_s,
            start_time_s=None,
            end_time_s=None,
            preempt_time_s=None,
        )

    def _shown(self, node: NodeInfo) -> NodeInfo:
        taken = sum(
            record.info.state in ALIVE and node.name in expand(record.info.nodes)
            for record in self._records
        )
        word = "ALLOCATED" if taken >= node.cpus else "MIXED" if taken else "IDLE"
        return replace(
            node,
            states=node.states if node.lost else frozenset({word}),
            cpus_allocated=taken,
            partitions=tuple(
                name for name, p in self.partitions.items() if node.name in expand(p.nodes)
            ),
        )


def settings_of(submission: Submission) -> tuple[Setting, ...]:
    """What the script's directives say, then what the options say: the last one counts.

    Raises:
        SlurmRejectedError: the script is no script, or cannot be read.
    """
    text = script_of(submission)
    if not text.startswith("#!"):
        raise SlurmRejectedError("sbatch refused: This does not look like a batch script.")
    lines = [line for line in text.split("\n") if not line.startswith("#SBTRAIN")]
    directives = read_directives("\n".join(lines), file="script", train_flags={})
    return (*directives.settings, *split_words(submission.options, {}).settings)


def script_of(submission: Submission) -> str:
    if submission.script is None:
        return submission.script_text or ""
    try:
        return submission.script.read_text(encoding="utf-8")
    except OSError as error:
        raise SlurmRejectedError(
            f"sbatch refused: Unable to open file {submission.script}"
        ) from error


def queued(info: JobInfo) -> QueuedJob:
    waits = info.state == JobState.PENDING
    return QueuedJob(
        partition=info.partition,
        nodes=info.nodes,
        node_count=info.node_count,
        ends_s=None if waits else info.end_time_s,
        limit_s=info.time_limit_s,
        reason=info.reason if waits else "",
        priority=-info.number,
    )


def history_row(info: JobInfo, *, at_s: float) -> HistoryRow:
    started_s = info.start_time_s
    return HistoryRow(
        job_id=info.job_id,
        number=info.number,
        name=info.name,
        comment=info.comment,
        user=info.user,
        partition=info.partition,
        state=info.state,
        state_text=info.state_text,
        reason=info.reason,
        nodes=info.nodes,
        node_count=info.node_count,
        submit_time_s=info.submit_time_s,
        start_time_s=started_s,
        end_time_s=None if info.state == JobState.RUNNING else info.end_time_s,
        elapsed_s=0 if started_s is None else int(at_s - started_s),
        time_limit_s=info.time_limit_s,
        exit_code=info.exit_code,
        exit_signal=info.exit_signal,
    )


def _tasks(array: str | None) -> list[int | None]:
    if array is None:
        return [None]
    return [int(task) for task in expand(f"[{array.partition('%')[0]}]")]
