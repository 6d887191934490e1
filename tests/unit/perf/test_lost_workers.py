"""What revoked workers take off a run's mean speed."""

from __future__ import annotations

import numpy as np
import pytest

from sbtrain_perf.fitting.lost_workers import (
    PRIOR_RATE_1_H,
    SpotRun,
    revocation_rate_1_h,
    shares_left,
)


def shares(rate_1_h: float, *, workers: int, hours: float, draws: int = 20_000) -> np.ndarray:
    random = np.random.default_rng(1)
    return shares_left(rate_1_h, workers=workers, hours=hours, draws=draws, random=random)


@pytest.mark.parametrize("workers", [2, 4, 8])
def test_the_mean_loss_is_half_the_revocations_of_one_worker(workers: int) -> None:
    assert 1.0 - shares(0.06, workers=workers, hours=1.0).mean() == pytest.approx(0.03, rel=0.1)


def test_at_least_one_worker_stays() -> None:
    assert shares(100.0, workers=4, hours=10.0).min() == pytest.approx(0.25)
    assert shares(100.0, workers=1, hours=10.0).min() == 1.0


def test_most_runs_of_two_workers_lose_nothing_and_some_up_to_half() -> None:
    left = shares(0.06, workers=2, hours=2.0)
    assert np.mean(left == 1.0) == pytest.approx(np.exp(-0.24), abs=0.01)
    assert 0.5 <= left.min() < 0.55


@pytest.mark.parametrize("rate_1_h", [0.02, 0.3])
def test_the_rate_is_learnt_from_lost_speed(rate_1_h: float) -> None:
    runs = [
        SpotRun(workers=4, hours=1.0, share=float(share))
        for share in shares(rate_1_h, workers=4, hours=1.0, draws=3000)
    ]
    assert revocation_rate_1_h(runs) == pytest.approx(rate_1_h, rel=0.2)


def test_lone_workers_and_no_runs_leave_the_prior() -> None:
    assert revocation_rate_1_h([]) == PRIOR_RATE_1_H
    alone = [SpotRun(workers=1, hours=5.0, share=0.5)] * 100
    assert revocation_rate_1_h(alone) == PRIOR_RATE_1_H


def test_runs_faster_than_undisturbed_ones_count_as_undisturbed() -> None:
    fast = [SpotRun(workers=2, hours=1.0, share=1.1)] * 10
    even = [SpotRun(workers=2, hours=1.0, share=1.0)] * 10
    assert revocation_rate_1_h(fast) == revocation_rate_1_h(even) < PRIOR_RATE_1_H
