"""The seam to Slurm: what sbtrain asks of a cluster, and the frozen values it gets back.

Bodies: ``command_client.CommandsClient`` (Slurm's own commands) and the tests' Slurm in
memory. Both pass the same contract test.

Times are seconds since the epoch, durations seconds, memory MiB. ``None`` means that
Slurm does not know the value yet or sets no limit, as each field says. Every call raises

    SlurmMissingError      Slurm's commands or configuration are not there
    SlurmTimeoutError      slurmctld (or slurmdbd) did not answer
    SlurmRejectedError     it refused; its words are in the message
    SlurmUnparsableError   its answer has a form that no version known to sbtrain writes
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sbtrain.slurm.cluster_config import ClusterConfig
from sbtrain.slurm.states import MAY_RESTART, OVER, JobState
from sbtrain.slurm.user_limits import UserLimits
from sbtrain_jobs.ending.job_control import EndCause, WayBack
from sbtrain_jobs.hostlist import expand

_FOR_NODES = {
    *("None", "Resources", "Priority", "Prolog", "ReqNodeNotAvail"),
    "Nodes_required_for_job_are_DOWN",  # ", DRAINED or reserved for jobs in higher ..."
}


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SlurmVersion:
    """Year and month of the release, then the patch: 22.05.8 is (22, 5, 8)."""

    year: int
    month: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.year}.{self.month:02d}.{self.patch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gres:
    """Generic resources of one kind, such as gpu:k80:2. kind is "" where it is untyped."""

    name: str
    kind: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeInfo:
    """One node. states holds Slurm's words in capitals, such as IDLE and DRAIN."""

    name: str
    states: frozenset[str]
    reason: str
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    cpus: int
    cpus_allocated: int
    memory_mib: int
    gres: tuple[Gres, ...]
    cores: int = 0  # threads of one core count once; 0: not told
    tmp_disk_mib: int = 0  # of its TmpFS; 0: not told

    @property
    def lost(self) -> bool:
        """Slurm cannot reach it, or has given it up."""
        return bool(self.states & {"DOWN", "FAIL", "NOT_RESPONDING", "POWERED_DOWN"})

    @property
    def usable(self) -> bool:
        """It runs jobs or could start one now."""
        closed = {"DRAIN", "DRAINED", "DRAINING", "UNKNOWN", "MAINTENANCE", "INVALID_REG"}
        return not self.lost and not self.states & closed


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAccess:
    """Whose jobs a partition takes: all words are empty where it takes everybody's."""

    groups: tuple[str, ...] = ()
    accounts: tuple[str, ...] = ()
    denied_accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    denied_qos: tuple[str, ...] = ()
    root_only: bool = False
    reservation_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInfo:
    """One partition. Limits are None where Slurm sets none."""

    name: str
    nodes: str  # host list
    node_count: int
    cpu_count: int
    default: bool
    up: bool
    priority_tier: int
    preempt_mode: str  # in capitals: OFF, REQUEUE, CANCEL, SUSPEND, ...
    grace_s: int
    max_time_s: int | None
    default_time_s: int | None
    max_nodes: int | None
    min_nodes: int = 0
    qos: str = ""  # whose limits bind its jobs
    max_cpus_per_node: int | None = None  # of one job
    max_memory_mib: int | None = None  # of one job, on a node
    default_memory: bool = False  # jobs that ask for none are given some, not all
    access: PartitionAccess = PartitionAccess()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """One job, array task, het component, or the tasks of an array that still wait.

    job_id is what squeue prints and Slurm's commands take: 12, 12_3, 12_[4-9], 12+1.
    While the job waits, start_time_s is Slurm's estimate if it has one; while it runs,
    end_time_s is when its limit (or a preemption's grace) runs out. restarts counts
    requeues and rises when the job is requeued, not when it starts again.
    """

    job_id: str
    number: int  # Slurm's own number of this record
    array_job_id: int | None = None
    array_tasks: str = ""  # one task, or the waiting ones: "3", "4-9%2"
    het_job_id: int | None = None
    het_offset: int | None = None
    name: str
    comment: str
    user: str
    user_id: int
    partition: str
    state: JobState
    state_text: str  # Slurm's word, also where this sbtrain does not know it
    reason: str  # one word: Resources, BeginTime, TimeLimit, NodeDown, None, ...
    nodes: str  # host list; "" while none is allocated
    node_count: int
    restarts: int
    requeue: bool  # Slurm may put it back after preemption or a node failure
    submit_time_s: float | None
    eligible_time_s: float | None
    start_time_s: float | None
    end_time_s: float | None
    preempt_time_s: float | None  # when it was told to make way
    time_limit_s: int | None
    exit_code: int
    exit_signal: int

    @property
    def submission_id(self) -> str:
        """The id that sbatch printed: of the whole array or het job."""
        return str(self.array_job_id or self.het_job_id or self.number)

    @property
    def over(self) -> bool:
        """It has ended and will not run again by itself. A preempted, requeued or
        node-failed job that may be requeued does not count as over."""
        if self.state in MAY_RESTART:
            return not self.requeue
        return self.state in OVER

    def answers_to(self, job_id: str) -> bool:
        """Whether a question about `job_id` (12, 12_3, 12+1) is about this record."""
        if job_id in {self.job_id, str(self.number), self.submission_id}:
            return True
        base, found, task = job_id.partition("_")
        if not found or base != str(self.array_job_id):
            return False
        return task.isdecimal() and int(task) in task_numbers(self.array_tasks)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A job, or an array's waiting tasks, as far as others wait for it.

    partition: all that it may start in, between commas. nodes: a host list, while it holds
    some. ends_s: when its limit runs out, None where it has none. tasks: so many alike.
    reason: Slurm's word for why it waits. priority: Slurm's, higher goes first.
    """

    partition: str
    nodes: str = ""
    node_count: int
    ends_s: float | None = None
    limit_s: int | None = None
    tasks: int = 1
    reason: str = ""
    priority: int = 0

    @property
    def in_line(self) -> bool:
        """It waits for nodes or for its turn, and not for a date, a limit or a release."""
        return self.reason in _FOR_NODES

    @property
    def partition_is_closed(self) -> bool:
        """It waits because a partition of it takes no jobs now."""
        return self.reason in {"PartitionDown", "PartitionInactive"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryRow:
    """One run of a job, from the accounting. A job that was requeued has several rows
    with the same job_id, the oldest first."""

    job_id: str
    number: int
    name: str
    comment: str
    user: str
    partition: str
    state: JobState
    state_text: str
    reason: str
    nodes: str
    node_count: int
    submit_time_s: float | None
    start_time_s: float | None
    end_time_s: float | None
    elapsed_s: int
    time_limit_s: int | None
    exit_code: int
    exit_signal: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAccounting:
    """The cluster keeps no history; reason is Slurm's own word for it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What is handed to sbatch: options as they stand, then a script by path or by text.

    token marks the job, so that a submission whose answer was lost is found again. It is
    kept in the job's comment, behind the user's own; sbatch keeps one comment alone, so
    `comment` must say the user's wherever it was written, in the options or in the script.
    """

    options: tuple[str, ...] = ()
    script: Path | None = None
    script_args: tuple[str, ...] = ()
    script_text: str | None = None
    token: str = ""
    comment: str | None = None
    working_dir: Path | None = None

    def __post_init__(self) -> None:
        if (self.script is None) == (self.script_text is None):
            raise ValueError("a submission has a script path or a script text, not both")
        if self.script_args and self.script is None:
            raise ValueError("sbatch passes arguments to a script that it reads by path alone")
        if self.token and not re.fullmatch(r"[A-Za-z0-9._-]{4,120}", self.token):
            raise ValueError(f"{self.token!r} is not a token: letters, digits, '.', '_', '-'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """messages is what sbatch wrote to stderr. found_again: the answer of Slurm was lost,
    and the job was found by its token."""

    job_id: str
    cluster: str | None = None
    messages: str = ""
    found_again: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEstimate:
    """When and where Slurm would start a job. It reckons with what is known now: running
    jobs end at their limits, and nobody submits anything else."""

    start_time_s: float
    partition: str
    nodes: str
    cpus: int
    preempts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStart:
    """How a running job stood when it started, to tell later what has become of it."""

    restarts: int
    nodes: tuple[str, ...]


class SlurmClient(Protocol):
    """See the head of this file for the errors that every call raises."""

    def version(self) -> SlurmVersion: ...

    def nodes(self) -> tuple[NodeInfo, ...]:
        """Every node once, in Slurm's order."""
        ...

    def partitions(self) -> tuple[PartitionInfo, ...]: ...

    def config(self) -> ClusterConfig: ...

    def limits(self, cluster: str) -> UserLimits:
        """Of this user on the cluster of that name. slurmdbd is asked, not slurmctld."""
        ...

    def jobs(self) -> tuple[JobInfo, ...]:
        """Own jobs that slurmctld remembers, ended ones included for a few minutes."""
        ...

    def queue(self) -> tuple[QueuedJob, ...]:
        """What runs and what waits, of everybody, by one question to slurmctld."""
        ...

    def jobs_by_id(self, job_ids: Sequence[str]) -> tuple[JobInfo, ...]:
        """Those of these jobs that slurmctld remembers; an id it does not know is left
        out. The id of an array or het job brings all its records."""
        ...

    def submit(self, submission: Submission) -> Submitted:
        """Submit once. If the answer is lost and the submission has a token, the job is
        looked for before it is submitted again, so that there is never a second one."""
        ...

    def find_by_token(self, token: str) -> tuple[JobInfo, ...]:
        """Own jobs that were submitted with this token, held and ended ones included."""
        ...

    def requeue(self, job_id: str) -> None:
        """Put a running or ended job back into the queue. Name one task of an array as
        Array_Task: the array's id requeues every task. A job that waits is refused."""
        ...

    def cancel(self, job_id: str) -> None:
        """End a job for good. An id that Slurm does not know is no error."""
        ...

    def history(self, job_ids: Sequence[str]) -> tuple[HistoryRow, ...] | NoAccounting:
        """Every run of these jobs that the accounting has, the oldest first. It lags one
        or two seconds behind."""
        ...

    def test_only(self, submission: Submission) -> StartEstimate:
        """What sbatch --test-only says: submits nothing, though Slurm spends a job id.
        A job that could never start is a SlurmRejectedError."""
        ...

    def end_cause(self, job_id: str, attempt: JobStart | None = None) -> EndCause:
        """Why a running job is being ended, as far as Slurm tells now.

        `attempt` is how the job stood when it started; without it, a requeue, a cancel and
        a lost node cannot be told. Slurm forgets that it preempted a job once the grace is
        over and it has put the job back: that reads as "requeued".
        """
        ...

    def way_back(self) -> WayBack:
        """How a job within the grace of its preemption comes back into the queue: what
        Slurm makes of a requeue and of an exit then differs by version."""
        ...

    def forbid_requeue(self, job_id: str) -> None:
        """Have Slurm leave the job alone once it ends, also when it is being preempted."""
        ...

    def awaited(self, job_id: str) -> bool:
        """Whether another own job waits for this one to end well (afterok, aftercorr)."""
        ...


def task_numbers(tasks: str) -> set[int]:
    """Numbers in Slurm's form of array tasks: 0-9, 1,3,7-9, 0-8:2, any with %limit."""
    numbers: set[int] = set()
    for part in tasks.partition("%")[0].split(","):
        span, _, step = part.partition(":")
        if re.fullmatch(r"\d+(-\d+)?", span) and (not step or step.isdecimal()):
            numbers |= {int(n) for n in expand(f"[{span}]")[:: int(step or 1) or 1]}
    return numbers
