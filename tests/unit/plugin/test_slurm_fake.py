"""The Slurm in memory: what it plays beyond the contract that it shares with the commands."""

from __future__ import annotations

import pytest

from fake_slurm import FakeSlurm
from fake_slurm_cluster import fake_node, fake_partition
from sbtrain.errors import SlurmRejectedError, SlurmTimeoutError
from sbtrain.slurm.client import JobInfo, JobStart, NoAccounting, Submission
from sbtrain.slurm.states import JobState


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def now(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def slurm(clock: Clock) -> FakeSlurm:
    return FakeSlurm(now=clock.now, hold_s=5.0, kill_wait_s=1.0)


def job(*lines: str, options: tuple[str, ...] = ()) -> Submission:
    return Submission(options=options, script_text="\n".join(["#!/bin/sh", *lines, ""]))


def only(slurm: FakeSlurm, job_id: str) -> JobInfo:
    (found,) = slurm.jobs_by_id([job_id])
    return found


def states(slurm: FakeSlurm, job_id: str) -> list[JobState]:
    rows = slurm.history([job_id])
    assert not isinstance(rows, NoAccounting)
    return [row.state for row in rows]


def test_a_preempted_job_is_put_back_after_the_grace(slurm: FakeSlurm, clock: Clock) -> None:
    job_id = slurm.submit(job("sleep 100", options=("-p", "spot"))).job_id
    assert only(slurm, job_id).state == JobState.RUNNING
    slurm.preempt(job_id, grace_s=15.0)
    assert slurm.end_cause(job_id) == "preempted"
    clock.now_s += 14.0
    assert only(slurm, job_id).state == JobState.RUNNING
    clock.now_s += 1.0
    back = only(slurm, job_id)
    assert (back.state, back.reason, back.restarts) == (JobState.PENDING, "BeginTime", 1)
    assert not back.over
    assert slurm.end_cause(job_id, JobStart(restarts=0, nodes=())) == "requeued"
    clock.now_s += 5.0
    assert only(slurm, job_id).state == JobState.RUNNING
    clock.now_s += 100.0
    assert only(slurm, job_id).state == JobState.COMPLETED
    assert states(slurm, job_id) == [JobState.PREEMPTED, JobState.COMPLETED]


def test_a_preempted_job_that_may_not_be_requeued_is_over(
    slurm: FakeSlurm, clock: Clock
) -> None:
    job_id = slurm.submit(job("sleep 100", options=("--no-requeue",))).job_id
    slurm.jobs()
    slurm.preempt(job_id, grace_s=1.0)
    clock.now_s += 1.0
    ended = only(slurm, job_id)
    assert (ended.state, ended.over, ended.restarts) == (JobState.PREEMPTED, True, 0)


@pytest.mark.parametrize(
    ("options", "after", "restarts"),
    [((), JobState.PENDING, 1), (("--no-requeue",), JobState.NODE_FAIL, 0)],
)
def test_a_lost_node_takes_its_jobs_with_it(
    slurm: FakeSlurm,
    clock: Clock,
    options: tuple[str, ...],
    after: JobState,
    restarts: int,
) -> None:
    job_id = slurm.submit(job("sleep 100", options=("-N2", *options))).job_id
    other = slurm.submit(job("sleep 100", options=("-N1",))).job_id
    assert only(slurm, job_id).nodes == "c[1-2]"
    slurm.lose_node("c2")
    dying = only(slurm, job_id)
    assert (dying.state, dying.nodes) == (JobState.COMPLETING, "c1")
    assert slurm.end_cause(job_id, JobStart(restarts=0, nodes=("c1", "c2"))) == "node-fail"
    clock.now_s += 1.0
    assert (only(slurm, job_id).state, only(slurm, job_id).restarts) == (after, restarts)
    assert only(slurm, other).state == JobState.RUNNING
    assert next(node for node in slurm.nodes() if node.name == "c2").lost
    clock.now_s += 5.0
    if after == JobState.PENDING:
        assert only(slurm, job_id).nodes == "c[1,3]"
    assert states(slurm, job_id)[0] == JobState.NODE_FAIL


def test_jobs_wait_for_free_processors(clock: Clock) -> None:
    slurm = FakeSlurm(
        nodes=[fake_node("n1", cpus=2)],
        partitions=[fake_partition("only", "n1", default=True)],
        now=clock.now,
    )
    ids = [slurm.submit(job(f"sleep {10 + place}")).job_id for place in range(3)]
    assert [only(slurm, job_id).reason for job_id in ids] == ["None", "None", "Resources"]
    assert slurm.nodes()[0].states == {"ALLOCATED"}
    clock.now_s += 10.0
    assert [only(slurm, job_id).state for job_id in ids] == [
        JobState.COMPLETED,
        JobState.RUNNING,
        JobState.RUNNING,
    ]


def test_a_time_limit_ends_a_job(slurm: FakeSlurm, clock: Clock) -> None:
    job_id = slurm.submit(job("#SBATCH -t 1", "sleep 100")).job_id
    slurm.jobs()
    clock.now_s += 59.0
    assert only(slurm, job_id).state == JobState.RUNNING
    clock.now_s += 1.0
    assert only(slurm, job_id).state == JobState.TIMEOUT
    assert states(slurm, job_id) == [JobState.TIMEOUT]


def test_options_win_over_directives(slurm: FakeSlurm) -> None:
    text = ("#SBATCH -p spot -J inner --comment='from the script'", "sleep 1")
    found = only(slurm, slurm.submit(job(*text, options=("-J", "outer"))).job_id)
    assert (found.name, found.partition) == ("outer", "spot")
    assert found.comment == "from the script"


def test_faults_are_raised_once(slurm: FakeSlurm) -> None:
    slurm.fail_next("partitions", SlurmTimeoutError("away"))
    assert slurm.nodes()
    with pytest.raises(SlurmTimeoutError):
        slurm.partitions()
    assert slurm.partitions()


def test_what_was_asked_is_on_record(slurm: FakeSlurm) -> None:
    submission = job("sleep 10")
    slurm.submit(submission)
    assert slurm.submissions == [submission]


def test_the_history_shows_what_still_runs(slurm: FakeSlurm, clock: Clock) -> None:
    array = slurm.submit(job("sleep 10", options=("--array=1-2",))).job_id
    slurm.jobs()
    clock.now_s += 4.0
    rows = slurm.history([array])
    assert not isinstance(rows, NoAccounting)
    assert [(row.job_id, row.state, row.elapsed_s, row.end_time_s) for row in rows] == [
        (f"{array}_1", JobState.RUNNING, 4, None),
        (f"{array}_2", JobState.RUNNING, 4, None),
    ]
    with pytest.raises(SlurmRejectedError):
        slurm.requeue("99")
