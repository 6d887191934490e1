"""What becomes of the job: every combination that matters, and never an un-cancelling."""

from __future__ import annotations

import dataclasses
import itertools
import typing

import pytest

from sbtrain_jobs.ending.job_control import EndCause
from sbtrain_jobs.ending.verdict import Facts, exit_status, judge

STOPPED = Facts(
    finished=False,
    noticed=True,
    cause="preempted",
    failed_code=None,
    failed_first=False,
    nodes_lost=False,
    resumable=True,
    requeues_left=3,
)
CAUSES: tuple[EndCause, ...] = typing.get_args(EndCause)


def verdict(**changes: object) -> tuple[str, int, str]:
    found = judge(dataclasses.replace(STOPPED, **changes))
    return found.action, found.exit_code, found.cause


@pytest.mark.parametrize("cause", ["preempted", "time-limit", "none"])
def test_a_stopped_run_is_requeued(cause: EndCause) -> None:
    assert verdict(cause=cause) == ("requeue", 85, cause)


def test_slurm_that_does_not_answer_is_waited_for() -> None:
    assert verdict(cause="unknown") == ("wait", 85, "unknown")


def test_cancelled_is_final() -> None:
    assert verdict(cause="cancelled") == ("end", 143, "cancelled")


@pytest.mark.parametrize("cause", ["requeued", "node-fail"])
def test_what_slurm_requeues_itself_is_not_requeued_again(cause: EndCause) -> None:
    assert verdict(cause=cause) == ("end", 85, cause)


def test_a_run_that_cannot_resume_is_not_requeued() -> None:
    assert verdict(resumable=False) == ("end", 143, "preempted")


def test_the_cap_on_requeues_holds() -> None:
    assert verdict(requeues_left=0) == ("end", 143, "requeue-cap")


def test_training_that_finished_after_the_notice_is_complete() -> None:
    assert verdict(finished=True) == ("end", 0, "completed")


@pytest.mark.parametrize("cause", ["preempted", "time-limit", "none", "unknown", "requeued"])
def test_a_run_that_was_done_and_saved_when_told_to_stop_is_complete(cause: EndCause) -> None:
    found = judge(dataclasses.replace(STOPPED, cause=cause, steps_done=True, resumable=False))
    assert (found.action, found.exit_code, found.cause) == ("end", 0, "completed")
    assert found.words == "all steps were done and saved; the script did not end by itself"


def test_a_cancel_of_a_run_that_was_done_stays_a_cancel() -> None:
    assert verdict(cause="cancelled", steps_done=True) == ("end", 143, "cancelled")


def test_a_time_limit_without_any_progress_ends_the_run_and_a_preemption_does_not() -> None:
    found = judge(dataclasses.replace(STOPPED, cause="time-limit", stuck="no progress"))
    assert (found.action, found.exit_code, found.cause) == ("end", 143, "failed")
    assert found.words.startswith("error: no progress; see in the trainers' logs what hangs")
    for cause in ("preempted", "none"):
        assert verdict(cause=cause, stuck="no progress")[0] == "requeue"
    assert verdict(cause="node-fail", stuck="no progress") == ("end", 85, "node-fail")


def test_a_failure_is_the_jobs_exit_code() -> None:
    failed = {"noticed": False, "cause": "none", "failed_code": 3, "failed_first": True}
    assert verdict(**failed) == ("end", 3, "failed")
    assert verdict(**{**failed, "failed_code": -9}) == ("end", 137, "failed")
    assert verdict(**{**failed, "cause": "unknown"}) == ("end", 3, "failed")
    assert verdict(**{**failed, "cause": "time-limit"}) == ("end", 3, "failed")


def test_a_trainer_that_felt_slurms_signal_first_has_not_failed() -> None:
    felt = {"failed_code": -15, "failed_first": True}
    assert verdict(**felt) == ("requeue", 85, "preempted")
    assert verdict(**felt, cause="none") == ("requeue", 85, "none")
    assert verdict(**felt, noticed=False) == ("requeue", 85, "preempted")
    assert verdict(**felt, noticed=False, cause="cancelled") == ("end", 143, "cancelled")


def test_a_failure_after_the_notice_is_not_one() -> None:
    assert verdict(failed_code=1, failed_first=False) == ("requeue", 85, "preempted")


def test_a_lost_node_explains_failures_elsewhere() -> None:
    lost = {"noticed": False, "cause": "none", "nodes_lost": True}
    assert verdict(**lost) == ("wait", 85, "node-fail")
    assert verdict(**lost, failed_code=1, failed_first=True) == ("wait", 85, "node-fail")
    assert verdict(**{**lost, "noticed": True}) == ("wait", 85, "node-fail")
    assert verdict(**{**lost, "cause": "node-fail"}) == ("end", 85, "node-fail")
    assert verdict(nodes_lost=True, cause="preempted") == ("requeue", 85, "preempted")


def test_nothing_uncancels_a_job() -> None:
    truth = (False, True)
    for noticed, code, first, lost, resumable, left in itertools.product(
        truth, (None, 1, -15, 85), truth, truth, truth, (0, 1)
    ):
        facts = dataclasses.replace(
            STOPPED,
            cause="cancelled",
            noticed=noticed,
            failed_code=code,
            failed_first=first,
            nodes_lost=lost,
            resumable=resumable,
            requeues_left=left,
        )
        assert judge(facts).action == "end"


def test_every_combination_has_a_verdict() -> None:
    truth = (False, True)
    for cause in CAUSES:
        for finished, noticed, code, first, lost in itertools.product(
            truth, truth, (None, 0, 3, -9, 85), truth, truth
        ):
            found = judge(
                dataclasses.replace(
                    STOPPED,
                    cause=cause,
                    finished=finished,
                    noticed=noticed,
                    failed_code=code,
                    failed_first=first,
                    nodes_lost=lost,
                )
            )
            assert (found.action == "requeue") <= (cause not in ("cancelled", "requeued"))
            assert (found.exit_code == 0) == (found.cause == "completed") or code == 0


@pytest.mark.parametrize(("returncode", "status"), [(0, 0), (3, 3), (-9, 137), (-15, 143)])
def test_exit_status(returncode: int, status: int) -> None:
    assert exit_status(returncode) == status
