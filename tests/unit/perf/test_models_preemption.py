"""Lifetimes and what interruptions cost: closed forms against Young, Daly and simulation."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbtrain_perf.models.lifetime import Lifetime
from sbtrain_perf.models.lifetime_table import LifetimeTable
from sbtrain_perf.models.preemption import (
    anew_s,
    best_interval_s,
    equivalent_hazards_1_s,
    first_order_interval_s,
    goodput,
    makespan_s,
    restarted_s,
)

HOUR = 3600.0
# A third dies in the first hour, few until the cap of 24 hours.
BATHTUB = Lifetime(
    edges_s=(HOUR, 20 * HOUR),
    hazards_1_s=(0.4 / HOUR, 0.01 / HOUR, 0.05 / HOUR),
    cap_s=24 * HOUR,
)


def simulated(
    lifetime: Lifetime,
    work_s: float,
    interval_s: float,
    *,
    checkpoint_s: float,
    restart_s: float,
    delay_s: float,
    runs: int,
    notice: float = 0.0,
    cap_notice: float = 0.0,
) -> float:
    """Mean makespan of a job that walks through restore, work, saves and interruptions."""
    generator = np.random.default_rng(5)
    total = 0.0
    for _ in range(runs):
        done = 0.0
        while True:
            end = float(lifetime.ages_s(generator.random(1))[0])
            age = restart_s
            while done < work_s and age < end:
                piece = min(interval_s, work_s - done)
                last = done + piece >= work_s - 1e-9
                warned = cap_notice if end >= lifetime.cap_s else notice
                if age < end < age + piece + checkpoint_s and generator.random() < warned:
                    done += min(end - age, piece)
                    break
                age += piece if last else piece + checkpoint_s
                if age < end:
                    done = work_s if last else done + piece
            if done >= work_s:
                total += age
                break
            total += end + delay_s
    return total / runs


def test_survival_and_its_integral_agree_with_a_fine_sum() -> None:
    ages = np.linspace(0.0, 30 * HOUR, 300_001)
    alive = BATHTUB.survival(ages)
    assert alive[0] == 1.0
    assert (np.diff(alive) <= 0.0).all()
    assert float(BATHTUB.survival(24 * HOUR)) == 0.0
    assert float(BATHTUB.survival(HOUR)) == pytest.approx(math.exp(-0.4))
    summed = float(np.trapezoid(alive, ages))
    assert float(BATHTUB.lived_s(30 * HOUR)) == pytest.approx(summed, rel=1e-4)
    assert BATHTUB.mean_s == pytest.approx(summed, rel=1e-4)


def test_drawn_ages_follow_the_law() -> None:
    ages = BATHTUB.ages_s(np.random.default_rng(1).random(200_000))
    for at in (0.3 * HOUR, HOUR, 5 * HOUR, 23 * HOUR):
        assert (ages > at).mean() == pytest.approx(float(BATHTUB.survival(at)), abs=0.004)
    assert ages.max() == 24 * HOUR


def test_a_curve_is_passed_through_and_causes_add_up() -> None:
    edges, alive = (HOUR, 2 * HOUR, 4 * HOUR), (0.7, 0.6, 0.6)
    law = Lifetime.surviving(edges, alive)
    assert law.survival(np.array(edges)) == pytest.approx(alive)
    both = law.joined(BATHTUB)
    at = np.array([0.5, 1.5, 3.0, 21.0, 25.0]) * HOUR
    assert both.survival(at) == pytest.approx(law.survival(at) * BATHTUB.survival(at))
    assert law.first_of(3).survival(at) == pytest.approx(law.survival(at) ** 3)
    assert law.capped(HOUR).mean_s == pytest.approx(float(law.lived_s(HOUR)))
    assert math.isinf(law.mean_s)  # nobody dies in its last bin


def test_a_law_that_kills_everyone_has_a_finite_mean() -> None:
    law = Lifetime.surviving((HOUR, 2 * HOUR), (0.5, 0.0))
    assert 0.0 < law.mean_s < 1.5 * HOUR


@pytest.mark.parametrize(
    ("edges", "hazards", "cap"),
    [
        ((2.0, 1.0), (0.1, 0.1, 0.1), 9.0),
        ((1.0,), (0.1,), 9.0),
        ((), (-0.1,), 9.0),
        ((), (1.0,), 0),
    ],
)
def test_bad_laws_are_refused(
    edges: tuple[float, ...], hazards: tuple[float, ...], cap: float
) -> None:
    with pytest.raises(ValueError, match="lifetime"):
        Lifetime(edges_s=edges, hazards_1_s=hazards, cap_s=cap)


@settings(max_examples=40, deadline=None)
@given(
    hours=st.floats(0.5, 500.0), save_s=st.floats(1.0, 300.0), restart_s=st.floats(0.0, 300.0)
)
def test_goodput_of_the_exponential_law_is_dalys(
    hours: float, save_s: float, restart_s: float
) -> None:
    """Daly 2006, eq. 20: T = (1/h + delay) e^(h restart) (e^(h (i+C)) - 1) W / i."""
    hazard, delay_s, interval_s = 1.0 / (hours * HOUR), 40.0, 900.0
    law = Lifetime.exponential(hazard)
    got = goodput(law, interval_s, checkpoint_s=save_s, restart_s=restart_s, delay_s=delay_s)
    slowed = (1.0 / hazard + delay_s) * math.exp(hazard * restart_s)
    expected = interval_s / (slowed * math.expm1(hazard * (interval_s + save_s)))
    assert got == pytest.approx(expected, rel=1e-6)


def test_best_interval_tends_to_youngs_and_stays_on_dalys() -> None:
    hazard = 1.0 / (24 * HOUR)
    law = Lifetime.exponential(hazard)
    off = []
    for save_s in (600.0, 60.0, 6.0):
        best = best_interval_s(law, checkpoint_s=save_s, restart_s=100.0)
        daly = (
            math.sqrt(2.0 * save_s / hazard)
            * (1.0 + math.sqrt(save_s * hazard / 2.0) / 3.0 + save_s * hazard / 18.0)
            - save_s
        )  # Daly 2006, eq. 37
        assert best == pytest.approx(daly, rel=0.02)
        off.append(abs(best / math.sqrt(2.0 * save_s / hazard) - 1.0))
    assert off[0] > off[1]
    assert off[2] < 0.02


def test_nothing_to_lose_means_the_longest_interval() -> None:
    never = Lifetime.exponential(0.0)
    assert best_interval_s(never, checkpoint_s=10.0, longest_s=5000.0) == 5000.0
    assert goodput(never, 90.0, checkpoint_s=10.0) == pytest.approx(0.9)
    told = best_interval_s(BATHTUB, checkpoint_s=10.0, notice=1.0, longest_s=5000.0)
    assert told == 5000.0


def test_early_deaths_ask_for_shorter_intervals_than_their_mean_says() -> None:
    mean_s = BATHTUB.mean_s
    best = best_interval_s(BATHTUB, checkpoint_s=30.0, restart_s=80.0)
    plain = best_interval_s(
        Lifetime.exponential(1.0 / mean_s), checkpoint_s=30.0, restart_s=80.0
    )
    here = {"checkpoint_s": 30.0, "restart_s": 80.0}
    assert goodput(BATHTUB, best, **here) > goodput(BATHTUB, plain, **here)


def equivalent_1_s(
    law: Lifetime, *, checkpoint_s: float, restart_s: float = 0.0, delay_s: float = 0.0
) -> float:
    table = LifetimeTable.of([law.edges_s], [law.hazards_1_s], [law.cap_s])
    (hazard,) = equivalent_hazards_1_s(
        table,
        checkpoint_s=np.array([checkpoint_s]),
        restart_s=np.array([restart_s]),
        delay_s=delay_s,
    )
    return float(hazard)


def test_a_constant_hazard_that_costs_as_much() -> None:
    costs = {"checkpoint_s": 30.0, "restart_s": 80.0, "delay_s": 60.0}
    plain = Lifetime.exponential(0.05 / HOUR)
    assert equivalent_1_s(plain, **costs) == pytest.approx(0.05 / HOUR, rel=0.01)
    assert equivalent_1_s(Lifetime.exponential(0.0), **costs) == 0.0
    # Of a cap, the best interval loses less than half of itself: the first order misses that.
    for law, off in ((dataclasses.replace(BATHTUB, cap_s=math.inf), 1e-3), (BATHTUB, 0.015)):
        same = Lifetime.exponential(equivalent_1_s(law, **costs))
        values = [goodput(one, best_interval_s(one, **costs), **costs) for one in (law, same)]
        assert values[0] == pytest.approx(values[1], rel=off)


def test_notice_keeps_what_is_lost_without() -> None:
    law = Lifetime.exponential(1.0 / HOUR)
    values = [
        goodput(law, 1800.0, checkpoint_s=30.0, restart_s=60.0, notice=notice)
        for notice in (0.0, 0.5, 1.0)
    ]
    assert values[1] == pytest.approx((values[0] + values[2]) / 2.0)
    assert values[0] < 0.8 < values[2]


def test_many_short_segments_are_summed_as_few_are() -> None:
    law = Lifetime.exponential(1.0 / (1000 * HOUR))
    hazard, interval_s, save_s = 1.0 / (1000 * HOUR), 20.0, 1.0
    expected = interval_s * hazard / math.expm1(hazard * (interval_s + save_s))
    assert goodput(law, interval_s, checkpoint_s=save_s) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("law", "hours"), [(BATHTUB, 3.3), (BATHTUB, 40.0), (Lifetime.exponential(1 / HOUR), 6.0)]
)
def test_makespan_is_what_a_simulation_takes(law: Lifetime, hours: float) -> None:
    figures = {"checkpoint_s": 60.0, "restart_s": 120.0, "delay_s": 200.0}
    expected = makespan_s(law, hours * HOUR, 1500.0, **figures)
    got = simulated(law, hours * HOUR, 1500.0, runs=4000, **figures)
    assert expected == pytest.approx(got, rel=0.015)


@pytest.mark.parametrize("notice", [0.0, 0.9])
@pytest.mark.parametrize("law", [BATHTUB.capped(2 * HOUR), Lifetime.exponential(1 / HOUR)])
def test_notice_shortens_a_makespan_as_simulated(law: Lifetime, notice: float) -> None:
    """A time limit always gives notice; preemptions do to a share."""
    figures = {"checkpoint_s": 60.0, "restart_s": 120.0, "delay_s": 200.0}
    figures |= {"notice": notice, "cap_notice": 1.0}
    expected = makespan_s(law, 7 * HOUR, 1500.0, **figures)
    got = simulated(law, 7 * HOUR, 1500.0, runs=3000, **figures)
    assert expected == pytest.approx(got, rel=0.015)
    short = {"checkpoint_s": 6.0, "restart_s": 120.0, "notice": notice, "cap_notice": 1.0}
    every = makespan_s(law, 7 * HOUR, 150.0, **short)
    assert makespan_s(law, 7 * HOUR, 150.0, most_blocks=24, **short) == pytest.approx(
        every, rel=0.005
    )


@pytest.mark.parametrize("notice", [0.0, 0.7])
@pytest.mark.parametrize(
    ("work_s", "interval_s"), [(800.0, 900.0), (42.0, 900.0), (2000.0, 900.0)]
)
def test_notice_keeps_no_more_of_the_last_segment_than_there_is(
    work_s: float, interval_s: float, notice: float
) -> None:
    """An interval longer than the run, and a time limit within it."""
    law = Lifetime.exponential(1.0 / 2000.0).capped(900.0)
    figures = {"checkpoint_s": 1.0, "restart_s": 5.0, "delay_s": 120.0}
    figures |= {"notice": notice, "cap_notice": 1.0}
    expected = makespan_s(law, work_s, interval_s, **figures)
    assert expected >= work_s + 5.0
    assert expected == pytest.approx(
        simulated(law, work_s, interval_s, runs=6000, **figures), rel=0.02
    )


@settings(max_examples=80, deadline=None)
@given(
    hazard=st.floats(1e-6, 1e-3),
    cap_s=st.floats(300.0, 1e6) | st.just(math.inf),
    work_s=st.floats(10.0, 1e5),
    interval_s=st.floats(10.0, 1e5),
    notice=st.sampled_from([0.0, 0.5, 1.0]),
    blocks=st.sampled_from([8, 64, 4000]),
)
def test_no_run_takes_less_than_its_work(
    hazard: float, cap_s: float, work_s: float, interval_s: float, notice: float, blocks: int
) -> None:
    law = Lifetime.exponential(hazard).capped(cap_s)
    figures = {"checkpoint_s": 1.0, "restart_s": 5.0, "delay_s": 120.0, "notice": notice}
    took_s = makespan_s(law, work_s, interval_s, cap_notice=1.0, most_blocks=blocks, **figures)
    assert took_s >= 0.999 * (work_s + 5.0)


def test_a_time_limit_that_gives_notice_costs_no_work() -> None:
    """The goodput under a cap with notice is that of all the work done until then."""
    law = Lifetime.exponential(0.0, cap_s=HOUR)
    figures = {"checkpoint_s": 10.0, "restart_s": 100.0, "delay_s": 20.0}
    whole_s, rest_s = divmod(HOUR - 100.0, 910.0)
    kept_s = whole_s * 900.0 + rest_s
    assert goodput(law, 900.0, cap_notice=1.0, **figures) == pytest.approx(
        kept_s / (HOUR + 20.0)
    )
    assert goodput(law, 900.0, **figures) == pytest.approx(whole_s * 900.0 / (HOUR + 20.0))
    assert best_interval_s(law, cap_notice=1.0, **figures) >= HOUR - 100.0


def test_the_first_order_interval_is_near_the_best() -> None:
    law = dataclasses.replace(BATHTUB, cap_s=math.inf)
    figures = {"checkpoint_s": 30.0, "restart_s": 80.0}
    quick = goodput(law, first_order_interval_s(law, **figures), **figures)
    assert quick == pytest.approx(
        goodput(law, best_interval_s(law, **figures), **figures), rel=3e-3
    )
    assert first_order_interval_s(law, notice=1.0, **figures) == 86_400.0


def test_a_long_makespan_is_work_over_goodput() -> None:
    figures = {"checkpoint_s": 60.0, "restart_s": 120.0, "delay_s": 200.0}
    work_s = 5000 * HOUR
    rate = goodput(BATHTUB, 1500.0, **figures)
    assert work_s / makespan_s(BATHTUB, work_s, 1500.0, **figures) == pytest.approx(
        rate, rel=0.01
    )


def test_makespan_without_interruption_and_without_progress() -> None:
    never = Lifetime.exponential(0.0)
    assert makespan_s(never, 1000.0, 300.0, checkpoint_s=10.0, restart_s=5.0) == 1035.0
    soon = Lifetime.exponential(0.0, cap_s=200.0)
    assert math.isinf(makespan_s(soon, 1000.0, 300.0, checkpoint_s=10.0))


def test_some_die_early_and_the_rest_never() -> None:
    """Half die in the first hour: short saves, and a makespan that a simulation confirms."""
    law = Lifetime(edges_s=(HOUR,), hazards_1_s=(math.log(2.0) / HOUR, 0.0))
    figures = {"checkpoint_s": 30.0, "restart_s": 60.0, "delay_s": 100.0}
    assert best_interval_s(law, checkpoint_s=30.0) < 12 * HOUR
    expected = makespan_s(law, 5 * HOUR, 900.0, **figures)
    assert expected == pytest.approx(
        simulated(law, 5 * HOUR, 900.0, runs=1500, **figures), rel=0.015
    )
    assert 0.0 < equivalent_1_s(law, **figures) < math.log(2.0) / HOUR


@settings(max_examples=30, deadline=None)
@given(hours=st.floats(0.2, 50.0), run_h=st.floats(0.1, 20.0))
def test_starting_anew_on_the_exponential_law(hours: float, run_h: float) -> None:
    hazard = 1.0 / (hours * HOUR)
    if hazard * run_h * HOUR > 100.0:
        return
    got = anew_s(Lifetime.exponential(hazard), run_h * HOUR, delay_s=30.0)
    expected = float(restarted_s(run_h * HOUR, hazard_1_s=hazard, restart_s=30.0))
    assert got == pytest.approx(expected, rel=1e-6)


def test_starting_anew_never_ends_past_the_cap() -> None:
    assert math.isinf(anew_s(BATHTUB, 24 * HOUR))
