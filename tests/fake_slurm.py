"""A Slurm in memory: a body of SlurmClient for tests.

It passes the same contract test as the real commands, and can be told to fail. Time passes
between calls only, by the clock that is handed in. Not played: het jobs, GRES, QOS,
priorities, the half minute that Slurm takes to notice a lost node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from fake_slurm_cluster import (
    ALIVE,
    FakeCluster,
    FakeJob,
    fake_node,
    fake_partition,
    history_row,
    queued,
    settings_of,
)
from sbtrain.errors import SlurmError, SlurmRejectedError
from sbtrain.slurm.client import (
    HistoryRow,
    JobInfo,
    JobStart,
    NoAccounting,
    NodeInfo,
    PartitionInfo,
    QueuedJob,
    SlurmVersion,
    StartEstimate,
    Submission,
    Submitted,
)
from sbtrain.slurm.cluster_config import ClusterConfig
from sbtrain.slurm.ending import end_cause_of, way_back_of
from sbtrain.slurm.states import JobState
from sbtrain.slurm.token import LostAnswers, Patience, token_of
from sbtrain.slurm.user_limits import NO_LIMITS, UserLimits
from sbtrain_jobs.ending.job_control import EndCause, WayBack
from sbtrain_jobs.hostlist import compress, expand


class FakeSlurm:
    """SlurmClient without Slurm; by default eight nodes and three partitions as in a
    private cluster: standard c[1-4], spot (may be preempted) and urgent on all.

    Attributes:
        submissions: what was submitted and accepted, in order.
    """

    def __init__(
        self,
        *,
        nodes: Sequence[NodeInfo] | None = None,
        partitions: Sequence[PartitionInfo] | None = None,
        version: SlurmVersion | None = None,
        user: str = "ada",
        accounting: bool = True,
        hold_s: float = 2.0,
        kill_wait_s: float = 0.0,
        limit_warning_s: float = 180.0,
        patience: Patience | None = None,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._cluster = FakeCluster(
            nodes=nodes
            or [
                *(fake_node(f"c{place}") for place in range(1, 5)),
                *(fake_node(f"g{place}", gpus=2) for place in range(1, 5)),
            ],
            partitions=partitions
            or [
                fake_partition("standard", "c[1-4]", default=True),
                fake_partition("spot", "c[1-4],g[1-4]", preempt_mode="REQUEUE"),
                fake_partition("urgent", "c[1-4],g[1-4]", tier=10),
            ],
            user=user,
            hold_s=hold_s,
            kill_wait_s=kill_wait_s,
        )
        self._version = version or SlurmVersion(year=22, month=5, patch=8)
        self._accounting = accounting
        self._limit_warning_s = limit_warning_s
        self._lost_answers = LostAnswers(
            self, send=self._send, patience=patience, now=now, sleep=sleep
        )
        self._now = now
        self._faults: list[tuple[str, SlurmError]] = []
        self._unsaid: list[SlurmError] = []
        self.submissions: list[Submission] = []

    def fail_next(self, call: str, error: SlurmError) -> None:
        """Let the next call of this name raise, without effect."""
        self._faults.append((call, error))

    def lose_next_answer(self, error: SlurmError) -> None:
        """Let the next submission be accepted and its answer be lost."""
        self._unsaid.append(error)

    def preempt(self, job_id: str, *, grace_s: float) -> None:
        """Tell a running job to make way; it is put back, or ended, grace_s later."""
        self._cluster.preempt(self._one(job_id), at_s=self._now(), grace_s=grace_s)

    def lose_node(self, name: str) -> None:
        """A node is gone, and Slurm has noticed."""
        self._cluster.advance(self._now())
        self._cluster.lose_node(name, at_s=self._now())

    def version(self) -> SlurmVersion:
        self._fault("version")
        return self._version

    def nodes(self) -> tuple[NodeInfo, ...]:
        self._fault("nodes")
        self._cluster.advance(self._now())
        return self._cluster.nodes()

    def partitions(self) -> tuple[PartitionInfo, ...]:
        self._fault("partitions")
        return tuple(self._cluster.partitions.values())

    def config(self) -> ClusterConfig:
        self._fault("config")
        return ClusterConfig(name="played", preempt_type="partition_prio")

    def limits(self, cluster: str) -> UserLimits:
        self._fault("limits")
        return NO_LIMITS

    def jobs(self) -> tuple[JobInfo, ...]:
        self._fault("jobs")
        return tuple(record.info for record in self._cluster.advance(self._now()))

    def queue(self) -> tuple[QueuedJob, ...]:
        self._fault("queue")
        return tuple(
            queued(record.info)
            for record in self._cluster.advance(self._now())
            if record.info.state == JobState.PENDING or record.info.state in ALIVE
        )

    def jobs_by_id(self, job_ids: Sequence[str]) -> tuple[JobInfo, ...]:
        self._fault("jobs_by_id")
        return tuple(
            record.info
            for record in self._cluster.advance(self._now())
            if any(record.info.answers_to(job_id) for job_id in job_ids)
        )

    def submit(self, submission: Submission) -> Submitted:
        return self._lost_answers.submit(submission)

    def find_by_token(self, token: str) -> tuple[JobInfo, ...]:
        return tuple(job for job in self.jobs() if token_of(job) == token)

    def requeue(self, job_id: str) -> None:
        self._fault("requeue")
        for record in self._named(job_id):
            if record.info.state == JobState.PENDING:
                raise SlurmRejectedError(f"scontrol refused: job {job_id} is pending execution")
            if not record.info.requeue:
                raise SlurmRejectedError(
                    "scontrol refused: Requested operation is presently disabled"
                )
            self._cluster.end(record, JobState.REQUEUED, at_s=self._now())

    def cancel(self, job_id: str) -> None:
        self._fault("cancel")
        for record in self._cluster.advance(self._now()):
            if record.info.answers_to(job_id) and not record.info.over:
                self._cluster.end(record, JobState.CANCELLED, at_s=self._now())

    def history(self, job_ids: Sequence[str]) -> tuple[HistoryRow, ...] | NoAccounting:
        self._fault("history")
        if not self._accounting:
            return NoAccounting(reason="Slurm accounting storage is disabled")
        present = [
            history_row(record.info, at_s=self._now())
            for record in self._cluster.advance(self._now())
            if not record.info.over
        ]
        rows = (
            row
            for row in (*self._cluster.history, *present)
            if {row.job_id, str(row.number), row.job_id.partition("_")[0]} & set(job_ids)
        )
        return tuple(sorted(rows, key=lambda row: (row.number, row.submit_time_s or 0.0)))

    def test_only(self, submission: Submission) -> StartEstimate:
        self._fault("test_only")
        partition, count = self._cluster.place(settings_of(submission))
        self._cluster.spend_number()
        return StartEstimate(
            start_time_s=self._now(),
            partition=partition.name,
            nodes=compress(expand(partition.nodes)[:count]),
            cpus=count,
        )

    def end_cause(self, job_id: str, attempt: JobStart | None = None) -> EndCause:
        self._fault("end_cause")
        return end_cause_of(
            self._one(job_id).info,
            attempt,
            now_s=self._now(),
            limit_warning_s=self._limit_warning_s,
            any_lost=self._cluster.lost,
        )

    def way_back(self) -> WayBack:
        self._fault("way_back")
        return way_back_of(self.version())

    def forbid_requeue(self, job_id: str) -> None:
        self._fault("forbid_requeue")
        for record in self._named(job_id):
            record.info = replace(record.info, requeue=False)

    def awaited(self, job_id: str) -> bool:
        self._fault("awaited")
        return False  # nothing waits for another job here

    def _send(self, submission: Submission) -> Submitted:
        self._fault("submit")
        number = self._cluster.accept(submission, at_s=self._now())
        self.submissions.append(submission)
        if self._unsaid:
            raise self._unsaid.pop(0)
        return Submitted(job_id=str(number))

    def _named(self, job_id: str) -> list[FakeJob]:
        records = self._cluster.advance(self._now())
        found = [record for record in records if record.info.answers_to(job_id)]
        if not found:
            raise SlurmRejectedError(f"scontrol refused: Invalid job id specified: {job_id}")
        return found

    def _one(self, job_id: str) -> FakeJob:
        return self._named(job_id)[0]

    def _fault(self, call: str) -> None:
        for place, (name, error) in enumerate(self._faults):
            if name == call:
                del self._faults[place]
                raise error
