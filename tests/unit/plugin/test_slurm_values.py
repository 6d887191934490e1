"""What the values of the Slurm seam say of themselves, and why a job is being ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sbtrain.slurm.client import JobInfo, JobStart, NodeInfo, SlurmVersion, Submission
from sbtrain.slurm.ending import end_cause_of
from sbtrain.slurm.states import JobState
from sbtrain_jobs.ending.job_control import EndCause

JOB = JobInfo(
    job_id="7",
    number=7,
    name="train",
    comment="",
    user="ada",
    user_id=1000,
    partition="spot",
    state=JobState.RUNNING,
    state_text="RUNNING",
    reason="None",
    nodes="c[1-2]",
    node_count=2,
    restarts=0,
    requeue=True,
    submit_time_s=1000.0,
    eligible_time_s=1000.0,
    start_time_s=1000.0,
    end_time_s=5000.0,
    preempt_time_s=None,
    time_limit_s=4000,
    exit_code=0,
    exit_signal=0,
)
TASK = replace(JOB, job_id="7_3", number=9, array_job_id=7, array_tasks="3")
WAITING = replace(JOB, job_id="7_[4-9:2%1]", array_job_id=7, array_tasks="4-9:2%1")
PART = replace(JOB, job_id="7+1", number=8, het_job_id=7, het_offset=1)


@pytest.mark.parametrize("state", list(JobState))
def test_a_job_is_over_only_when_it_cannot_run_again(state: JobState) -> None:
    final = {
        "completed",
        "cancelled",
        "failed",
        "timeout",
        "deadline",
        "out_of_memory",
        "revoked",
    }
    restarts = {"preempted", "node_fail", "boot_fail", "requeued"}
    assert replace(JOB, state=state).over is (state.value in final)
    kept_out = replace(JOB, state=state, requeue=False)
    assert kept_out.over is (state.value in final | restarts)


@pytest.mark.parametrize(
    ("job", "ids", "others"),
    [
        (JOB, ["7"], ["77", "7_0", "7+0", "8"]),
        (TASK, ["7", "7_3", "9"], ["7_30", "7_4", "8"]),
        (WAITING, ["7", "7_4", "7_8", "7_[4-9:2%1]"], ["7_3", "7_5", "7_10", "7_x"]),
        (PART, ["7", "7+1", "8"], ["7+0", "9"]),
    ],
)
def test_which_ids_a_job_answers_to(job: JobInfo, ids: list[str], others: list[str]) -> None:
    assert [job.answers_to(job_id) for job_id in ids] == [True] * len(ids)
    assert [job.answers_to(job_id) for job_id in others] == [False] * len(others)


def test_the_id_that_sbatch_printed() -> None:
    assert {job.submission_id for job in (JOB, TASK, WAITING, PART)} == {"7"}


@pytest.mark.parametrize(
    ("states", "usable", "lost"),
    [
        ({"IDLE"}, True, False),
        ({"MIXED", "PLANNED"}, True, False),
        ({"ALLOCATED"}, True, False),
        ({"IDLE", "DRAIN"}, False, False),
        ({"MIXED", "MAINTENANCE"}, False, False),
        ({"DOWN"}, False, True),
        ({"IDLE", "NOT_RESPONDING"}, False, True),
        ({"UNKNOWN"}, False, False),
    ],
)
def test_nodes(states: set[str], usable: bool, lost: bool) -> None:
    node = NodeInfo(
        name="c1",
        states=frozenset(states),
        reason="",
        partitions=(),
        features=(),
        cpus=4,
        cpus_allocated=0,
        memory_mib=1,
        gres=(),
    )
    assert (node.usable, node.lost) == (usable, lost)


def test_versions_are_ordered() -> None:
    old, new = SlurmVersion(year=22, month=5, patch=8), SlurmVersion(year=23, month=2)
    assert old < new
    assert str(old) == "22.05.8"


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (Submission, "path or a script text"),
        (lambda: Submission(script=Path("a"), script_text="#!"), "path or a script text"),
        (lambda: Submission(script_text="#!", script_args=("x",)), "arguments"),
        (lambda: Submission(script_text="#!", token="a b"), "not a token"),
        (lambda: Submission(script_text="#!", token="wrong]"), "not a token"),
    ],
)
def test_what_is_no_submission(make: Callable[[], Submission], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()


ATTEMPT = JobStart(restarts=0, nodes=("c1", "c2"))
DYING = replace(JOB, state=JobState.COMPLETING, end_time_s=2000.0)


def cause(job: JobInfo, attempt: JobStart | None = ATTEMPT, *down: str) -> EndCause:
    return end_cause_of(
        job,
        attempt,
        now_s=2000.0,
        limit_warning_s=120.0,
        any_lost=lambda names: bool(set(names) & set(down)),
    )


class TestEndCause:
    def test_a_job_with_time_left_is_not_ending(self) -> None:
        assert cause(JOB) == cause(JOB, None) == "none"
        assert cause(replace(JOB, end_time_s=None)) == "none"

    def test_preempted_from_the_notice_to_the_end_of_the_grace(self) -> None:
        noticed = replace(JOB, preempt_time_s=1990.0, end_time_s=2005.0)
        assert cause(noticed) == cause(noticed, None) == "preempted"
        kept_out = replace(DYING, requeue=False, preempt_time_s=2000.0, end_time_s=2000.0)
        assert cause(kept_out) == "preempted"
        assert cause(replace(JOB, state=JobState.PREEMPTED)) == "preempted"

    @pytest.mark.parametrize(("left_s", "expected"), [(120, "time-limit"), (121, "none")])
    def test_a_limit_that_is_near(self, left_s: float, expected: EndCause) -> None:
        assert cause(replace(JOB, end_time_s=2000.0 + left_s)) == expected

    def test_a_limit_that_is_reached(self) -> None:
        assert cause(replace(DYING, reason="TimeLimit")) == "time-limit"
        assert cause(replace(DYING, state=JobState.TIMEOUT)) == "time-limit"

    def test_cancelled(self) -> None:
        assert cause(DYING) == "cancelled"
        assert cause(replace(JOB, state=JobState.CANCELLED), None) == "cancelled"

    def test_preempted_by_a_cancel_where_there_is_no_grace(self) -> None:
        at_once = replace(DYING, preempt_time_s=2000.0, end_time_s=2000.0)
        asked = list[str]()

        def cancels(partition: str) -> bool:
            asked.append(partition)
            return True

        def told(job: JobInfo) -> EndCause:
            return end_cause_of(
                job,
                ATTEMPT,
                now_s=2000.0,
                limit_warning_s=120.0,
                any_lost=lambda _: False,
                cancels=cancels,
            )

        assert told(at_once) == "preempted"
        assert asked == [at_once.partition]
        assert told(replace(at_once, preempt_time_s=1990.0)) == "cancelled"
        assert told(DYING) == "cancelled"
        assert len(asked) == 1

    def test_cancelled_within_the_grace_of_a_preemption(self) -> None:
        """Slurm leaves PreemptTime set; a requeue would raise the job from the dead."""
        assert cause(replace(DYING, preempt_time_s=1990.0)) == "cancelled"
        assert cause(replace(DYING, preempt_time_s=1990.0, requeue=False)) == "cancelled"
        at_once = replace(DYING, preempt_time_s=2000.0, end_time_s=2000.0)
        assert cause(at_once) == "cancelled"
        ended = replace(JOB, state=JobState.CANCELLED, preempt_time_s=1990.0)
        assert cause(ended) == "cancelled"

    def test_without_knowing_how_it_began_a_dying_job_tells_nothing(self) -> None:
        assert cause(DYING, None) == "unknown"

    def test_requeued_even_if_its_node_list_has_shrunk(self) -> None:
        back = replace(DYING, restarts=1, nodes="c1")
        assert cause(back) == "requeued"
        assert cause(replace(back, state=JobState.PENDING, nodes="")) == "requeued"

    def test_a_second_attempt_counts_from_where_it_began(self) -> None:
        second = JobStart(restarts=1, nodes=("c1", "c2"))
        assert cause(replace(DYING, restarts=1), second) == "cancelled"
        assert cause(replace(DYING, restarts=2), second) == "requeued"

    def test_a_lost_node(self) -> None:
        back = replace(DYING, restarts=1, nodes="c1")
        assert cause(back, ATTEMPT, "c2") == "node-fail"
        assert cause(back, ATTEMPT, "c1") == "requeued"
        assert cause(replace(DYING, reason="NodeDown", nodes="c1")) == "node-fail"
        assert cause(replace(JOB, nodes="c1"), ATTEMPT, "c2") == "node-fail"  # --no-kill
        assert cause(replace(JOB, nodes="c1"), ATTEMPT) == "none"  # given back by itself

    def test_what_no_sign_explains(self) -> None:
        assert cause(replace(JOB, state=JobState.FAILED)) == "unknown"
        assert cause(replace(JOB, state=JobState.UNKNOWN)) == "unknown"
