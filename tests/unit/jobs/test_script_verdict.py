"""What becomes of the job of a script that starts its ranks itself: as under sbatch, but for a
requeue where the run declares how it resumes."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from sbtrain_jobs.ending.job_control import EndCause
from sbtrain_jobs.ending.outcome import ScriptEnd
from sbtrain_jobs.ending.script_verdict import judge_script
from sbtrain_jobs.ending.verdict import Facts

CAUSES: tuple[EndCause, ...] = typing.get_args(EndCause)
UNTOLD = Facts(
    finished=False,
    noticed=False,
    cause="none",
    failed_code=None,
    failed_first=False,
    nodes_lost=False,
    resumable=True,
    requeues_left=3,
)


def verdict(code: int | None, **changes: object) -> tuple[str, int, int, str]:
    found = judge_script(dataclasses.replace(UNTOLD, **changes), ScriptEnd(code=code))
    return found.action, found.exit_code, found.signal, found.cause


@pytest.mark.parametrize("resumable", [True, False])
def test_its_own_end_is_the_job_s(resumable: bool) -> None:
    assert verdict(0, resumable=resumable) == ("end", 0, 0, "completed")
    assert verdict(5, resumable=resumable) == ("end", 5, 0, "failed")
    assert verdict(-9, resumable=resumable) == ("end", 137, 9, "failed")


@pytest.mark.parametrize("cause", ["preempted", "time-limit", "none"])
@pytest.mark.parametrize("code", [0, 5, -15, None])
def test_told_to_stop_it_is_requeued_where_it_resumes(
    cause: EndCause, code: int | None
) -> None:
    assert verdict(code, noticed=True, cause=cause)[:2] == ("requeue", 85)


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("code", [0, 5, -15])
def test_one_that_does_not_resume_is_slurm_s_affair(cause: EndCause, code: int) -> None:
    action, exit_code, by_signal, _ = verdict(code, noticed=True, cause=cause, resumable=False)
    assert (action, by_signal) == ("end", max(0, -code))
    assert exit_code == (128 - code if code < 0 else code)


@pytest.mark.parametrize("code", [0, 5, -15])
def test_cancelled_and_requeued_end_as_the_script_does(code: int) -> None:
    for cause in ("cancelled", "requeued", "node-fail"):
        action, _, by_signal, said = verdict(code, noticed=True, cause=cause)
        assert (action, by_signal, said) == ("end", max(0, -code), cause)


def test_a_step_that_felt_the_preemption_first_counts() -> None:
    assert verdict(143, noticed=False, cause="preempted")[0] == "requeue"


def test_complete_is_complete() -> None:
    assert verdict(0, noticed=True, cause="preempted", steps_done=True)[3] == "completed"
    assert verdict(None, noticed=True, cause="time-limit", steps_done=True)[:2] == ("end", 0)


def test_slurm_that_does_not_answer_is_waited_for() -> None:
    assert verdict(0, noticed=True, cause="unknown")[0] == "wait"
    assert verdict(0, noticed=False, cause="unknown")[0] == "end"


def test_without_a_requeue_a_failure_stays_one() -> None:
    assert verdict(7, noticed=True, requeues_left=0)[:2] == ("end", 7)
    assert verdict(0, noticed=True, requeues_left=0) == ("end", 143, 0, "requeue-cap")
    stuck = {"noticed": True, "cause": "time-limit", "stuck": "no progress"}
    assert verdict(85, **stuck) == ("end", 85, 0, "failed")


def test_staging_that_failed_is_no_end_of_the_script() -> None:
    assert verdict(None, failed_code=31, failed_first=True)[:2] == ("end", 31)
