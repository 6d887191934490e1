"""Whose exit status is the job's, where one rank's failure brings down the others."""

from __future__ import annotations

import pytest

from sbtrain_jobs.ending.first_failure import ENDS_WITHIN_S, FirstFailure, RoleFailure


class Ends:
    def __init__(self) -> None:
        self.now_s = 0.0
        self.seen = FirstFailure(clock=lambda: self.now_s)

    @property
    def first(self) -> tuple[int, int] | None:
        found = self.seen.found()
        return None if found is None else (found.rank, found.returncode)


@pytest.fixture
def ends() -> Ends:
    return Ends()


def test_one_that_ends_well_is_no_failure(ends: Ends) -> None:
    ends.seen.script_over(0)
    ends.seen.ended(0, 0)
    assert ends.first is None


def test_one_that_is_ended_by_a_signal_is_it_at_once(ends: Ends) -> None:
    ends.seen.ended(1, -11)
    assert ends.first == (1, -11)
    assert ends.seen.found() == RoleFailure(rank=1, returncode=-11)


def test_the_rank_whose_script_was_over_first_is_waited_for(ends: Ends) -> None:
    """It waits in MPI_Finalize for the others, which fail for want of it."""
    ends.seen.script_over(0)
    ends.seen.script_over(1)
    ends.seen.ended(1, 1)
    assert ends.first is None
    ends.seen.ended(0, 3)
    assert ends.first == (0, 3)


def test_one_that_ended_well_before_does_not_take_the_blame(ends: Ends) -> None:
    ends.seen.script_over(0)
    ends.seen.script_over(1)
    ends.seen.ended(1, 4)
    ends.seen.ended(0, 0)
    assert ends.first == (1, 4)


def test_nobody_is_waited_for_without_end(ends: Ends) -> None:
    ends.seen.script_over(0)
    ends.seen.script_over(1)
    ends.seen.ended(1, 4)
    ends.now_s += ENDS_WITHIN_S + 0.1
    assert ends.first == (1, 4)


def test_one_killed_before_any_script_was_over_comes_first(ends: Ends) -> None:
    ends.seen.script_over(0)  # it failed for want of rank 1
    ends.seen.ended(1, -9)
    assert ends.first == (1, -9)


def test_at_last_what_has_failed_counts(ends: Ends) -> None:
    ends.seen.script_over(0)
    ends.seen.ended(1, 9)
    ends.seen.script_over(1)  # comes too late to count
    assert ends.first == (1, 9)
    ends.seen.script_over(2)
    ends.seen.ended(2, 4)
    assert ends.seen.found(at_last=True) == RoleFailure(rank=1, returncode=9)
