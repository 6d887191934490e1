"""One submission becomes one job, whatever gets lost on the way."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_slurm import FakeSlurm
from sbtrain.errors import SlurmRejectedError, SlurmTimeoutError, SlurmUnparsableError
from sbtrain.slurm.client import Submission, Submitted
from sbtrain.slurm.refusals import may_have_arrived
from sbtrain.slurm.states import JobState
from sbtrain.slurm.token import LostAnswers, Patience, marked_comment, split_comment

TOKEN = "run-20261130-abcd"
TIMED_OUT = SlurmTimeoutError("no answer", stderr="Socket timed out on send/recv operation")
NOT_REACHED = SlurmTimeoutError(
    "away", stderr="Unable to contact slurm controller (connect failure)"
)


class Clock:
    """Time that passes while one sleeps, with something to happen at the n-th sleep."""

    def __init__(self) -> None:
        self.now_s = 1_000_000.0
        self._sleeps = 0
        self._events: dict[int, Callable[[], None]] = {}

    def on_sleep(self, number: int, event: Callable[[], None]) -> None:
        self._events[number] = event

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self._sleeps += 1
        self._events.get(self._sleeps, lambda: None)()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def slurm(clock: Clock) -> FakeSlurm:
    return FakeSlurm(now=clock.now, sleep=clock.sleep)


def submission(token: str = TOKEN, *lines: str) -> Submission:
    return Submission(script_text="\n".join(["#!/bin/sh", *lines, ""]), token=token)


def test_an_accepted_job_is_found_again(slurm: FakeSlurm, clock: Clock) -> None:
    slurm.lose_next_answer(TIMED_OUT)
    begin_s = clock.now_s
    submitted = slurm.submit(submission())
    assert submitted.found_again
    assert "accepted all the same: 1" in submitted.messages
    assert [job.job_id for job in slurm.jobs()] == [submitted.job_id] == ["1"]
    assert clock.now_s == begin_s  # found at the first look


@pytest.mark.parametrize("lines", [("exit 1",), ("sleep 100",), ("#SBATCH --hold", "exit 0")])
def test_also_if_it_has_ended_or_is_held(slurm: FakeSlurm, lines: tuple[str, ...]) -> None:
    slurm.lose_next_answer(TIMED_OUT)
    assert slurm.submit(submission(TOKEN, *lines)).found_again
    assert len(slurm.submissions) == 1


def test_all_tasks_of_an_array_are_one_submission(slurm: FakeSlurm) -> None:
    slurm.lose_next_answer(TIMED_OUT)
    array = Submission(options=("--array=3-5",), script_text="#!/bin/sh\n", token=TOKEN)
    assert slurm.submit(array).job_id == "1"
    assert len(slurm.jobs()) == 3


def test_what_never_arrived_is_sent_again_once_slurm_surely_lacks_it(
    slurm: FakeSlurm, clock: Clock
) -> None:
    slurm.fail_next("submit", TIMED_OUT)
    begin_s = clock.now_s
    submitted = slurm.submit(submission())
    assert not submitted.found_again
    assert len(slurm.jobs()) == 1
    assert clock.now_s - begin_s >= Patience().settle_s


def test_a_silence_in_the_search_starts_the_waiting_anew(
    slurm: FakeSlurm, clock: Clock
) -> None:
    begin_s = clock.now_s
    slurm.fail_next("submit", TIMED_OUT)
    clock.on_sleep(3, lambda: slurm.fail_next("jobs", NOT_REACHED))
    slurm.submit(submission())
    # two looks without the job, one without an answer, then four more to be sure
    assert clock.now_s - begin_s == 7 * 2.0


def test_slurm_that_does_not_answer_the_search_either_is_waited_for(
    slurm: FakeSlurm,
) -> None:
    slurm.lose_next_answer(TIMED_OUT)
    for _ in range(5):
        slurm.fail_next("jobs", NOT_REACHED)
    assert slurm.submit(submission()).found_again
    assert len(slurm.submissions) == 1


def test_the_search_gives_up_and_says_that_it_does_not_know(
    slurm: FakeSlurm, clock: Clock
) -> None:
    slurm.lose_next_answer(TIMED_OUT)
    for _ in range(1000):
        slurm.fail_next("jobs", NOT_REACHED)
    begin_s = clock.now_s
    with pytest.raises(
        SlurmTimeoutError, match="did not say whether it took the job"
    ) as caught:
        slurm.submit(submission())
    assert TOKEN in caught.value.hint
    assert may_have_arrived(caught.value)
    assert clock.now_s - begin_s == pytest.approx(Patience().give_up_s, abs=Patience().look_s)
    assert len(slurm.submissions) == 1


def test_a_second_request_that_is_not_reached_does_not_undo_the_doubt(
    slurm: FakeSlurm,
) -> None:
    slurm.fail_next("submit", TIMED_OUT)
    for _ in range(1000):
        slurm.fail_next("submit", NOT_REACHED)
    with pytest.raises(SlurmTimeoutError, match="did not say whether") as caught:
        slurm.submit(submission())
    assert may_have_arrived(caught.value)


def test_a_slurm_that_was_not_reached_has_no_job(slurm: FakeSlurm, clock: Clock) -> None:
    slurm.fail_next("submit", NOT_REACHED)
    begin_s = clock.now_s
    with pytest.raises(SlurmTimeoutError, match="away"):
        slurm.submit(submission())
    assert clock.now_s == begin_s
    assert slurm.jobs() == ()


def test_without_a_token_nothing_is_sent_twice(slurm: FakeSlurm) -> None:
    slurm.fail_next("submit", TIMED_OUT)
    with pytest.raises(SlurmTimeoutError):
        slurm.submit(submission(""))
    assert slurm.jobs() == ()


def test_a_refusal_is_final(slurm: FakeSlurm) -> None:
    slurm.fail_next("submit", TIMED_OUT)
    slurm.fail_next("submit", SlurmRejectedError("closed for maintenance"))
    with pytest.raises(SlurmRejectedError, match="maintenance"):
        slurm.submit(submission())


def test_an_unreadable_answer_hides_no_job(slurm: FakeSlurm) -> None:
    garbled = SlurmUnparsableError("no id")
    slurm.lose_next_answer(garbled)
    assert slurm.submit(submission()).found_again
    slurm.fail_next("submit", garbled)
    with pytest.raises(SlurmUnparsableError, match="no id"):
        slurm.submit(submission("another-token"))
    assert len(slurm.jobs()) == 1


def test_a_first_request_that_arrives_after_the_second_ends_the_second(
    slurm: FakeSlurm, clock: Clock
) -> None:
    """The queue takes the first request only while it takes the second."""
    tries: list[Submission] = []

    def send(what: Submission) -> Submitted:
        tries.append(what)
        if len(tries) == 1:
            raise TIMED_OUT
        slurm.submit(what)
        return slurm.submit(what)

    once = LostAnswers(slurm, send=send, patience=None, now=clock.now, sleep=clock.sleep)
    assert once.submit(submission(TOKEN, "sleep 100")).job_id == "1"
    assert {job.job_id: job.state for job in slurm.jobs()} == {
        "1": JobState.RUNNING,
        "2": JobState.CANCELLED,
    }


def test_a_silence_after_the_second_request_does_not_hide_its_job(
    slurm: FakeSlurm, clock: Clock
) -> None:
    tries: list[Submission] = []

    def send(what: Submission) -> Submitted:
        tries.append(what)
        if len(tries) == 1:
            raise TIMED_OUT
        job_id = slurm.submit(what).job_id
        slurm.fail_next("jobs", NOT_REACHED)
        return Submitted(job_id=job_id)

    once = LostAnswers(slurm, send=send, patience=None, now=clock.now, sleep=clock.sleep)
    assert once.submit(submission()).job_id == "1"


def test_of_several_jobs_the_oldest_is_the_one(slurm: FakeSlurm) -> None:
    for _ in range(3):
        slurm.submit(submission())
    slurm.fail_next("submit", TIMED_OUT)
    assert slurm.submit(submission()).job_id == "1"


@given(st.text(max_size=40).filter(lambda text: "[sbtrain:" not in text))
def test_the_own_comment_survives_the_mark(comment: str) -> None:
    marked = marked_comment(Submission(script_text="#!", token=TOKEN, comment=comment))
    own, token = split_comment(marked)
    assert (own.strip(), token) == (comment.strip(), TOKEN)


def test_a_comment_without_a_mark_is_the_users() -> None:
    assert split_comment("see [sbtrain:x] above") == ("see [sbtrain:x] above", "")
    assert split_comment("") == ("", "")
    assert marked_comment(Submission(script_text="#!")) == ""
