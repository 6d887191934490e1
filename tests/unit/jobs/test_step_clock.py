"""Step times arrive whole, in order and in batches."""

from __future__ import annotations

import pytest

from sbtrain_jobs.training.step_clock import StepClock


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """A StepClock on a hand-moved clock, and what it reported."""

    def __init__(self) -> None:
        self.hand = Hand()
        self.reported: list[tuple[int, tuple[float, ...]]] = []
        self.clock = StepClock(
            lambda first, seconds: self.reported.append((first, seconds)), clock=self.hand
        )

    def step(self, number: int, seconds: float) -> None:
        self.clock.begin(number)
        self.hand.now += seconds
        self.clock.end()


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_reports_at_most_once_a_second(desk: Desk) -> None:
    for number in range(1, 41):
        desk.step(number, 0.125)
    assert [first for first, _ in desk.reported] == [1, 9, 17, 25, 33]
    desk.clock.flush()
    assert sum(len(seconds) for _, seconds in desk.reported) == 40


def test_every_step_is_reported_once_and_in_order(desk: Desk) -> None:
    spent = [0.3, 0.9, 0.2, 2.0, 0.1]
    for number, seconds in enumerate(spent, start=8):
        desk.step(number, seconds)
    desk.clock.flush()
    told = [
        (first + place, seconds)
        for first, batch in desk.reported
        for place, seconds in enumerate(batch)
    ]
    assert [number for number, _ in told] == [8, 9, 10, 11, 12]
    assert [seconds for _, seconds in told] == pytest.approx(spent)


def test_time_between_steps_is_not_counted(desk: Desk) -> None:
    desk.step(1, 0.1)
    desk.hand.now += 5.0  # a checkpoint
    desk.step(2, 0.1)
    desk.clock.flush()
    assert [s for _, batch in desk.reported for s in batch] == pytest.approx([0.1, 0.1])


def test_a_gap_in_the_numbers_starts_a_new_batch(desk: Desk) -> None:
    desk.step(1, 0.1)
    desk.step(5, 0.2)
    desk.clock.flush()
    assert [first for first, _ in desk.reported] == [1, 5]


def test_nothing_is_reported_without_steps(desk: Desk) -> None:
    desk.clock.flush()
    desk.clock.begin(1)
    desk.clock.flush()
    assert desk.reported == []


def test_steps_that_ran_as_one_share_its_time(desk: Desk) -> None:
    desk.clock.begin(1)
    desk.hand.now += 0.75
    desk.clock.end(3)
    desk.clock.flush()
    assert desk.reported == [(1, (0.25, 0.25, 0.25))]


def test_what_was_not_a_steps_own_is_left_out(desk: Desk) -> None:
    desk.clock.begin(1)
    desk.hand.now += 0.75
    desk.clock.leave_out(0.5)
    desk.clock.end()
    desk.clock.flush()
    assert desk.reported == [(1, (0.25,))]
