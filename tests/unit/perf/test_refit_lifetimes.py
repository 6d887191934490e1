"""Refit learns when partitions preempt; plans take checkpoints and makespans from the law."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest
from decisions import SHIPPED, cluster, partition, request

from sbtrain_perf.by_law import noticed_share
from sbtrain_perf.coefficients import (
    Coefficients,
    coefficients_from_json,
    coefficients_to_json,
)
from sbtrain_perf.decision import Decision
from sbtrain_perf.errors import CoefficientsError
from sbtrain_perf.lifetimes import Lived
from sbtrain_perf.models.lifetime import Lifetime
from sbtrain_perf.models.preemption import anew_s, makespan_s
from sbtrain_perf.planner import plan_request
from sbtrain_perf.reasons import preemption_in_words
from sbtrain_perf.refit import refit
from sbtrain_perf.request import Objective, Request
from sbtrain_perf.terms import law_of

HOUR = 3600.0
STATED_S = 118_000.0
AT_ONCE_S = 1e-3  # too short a notice for any checkpoint
SPOT = partition("spot", preemptible=True, price_per_node_hour=0.3, grace_s=AT_ONCE_S)
BATCH = partition("batch")


def lived(
    count: int, *, mean_s: float = 2 * HOUR, seed: int = 1, **changes: object
) -> list[Lived]:
    """Attempts of that mean time to preemption; those that were through before are censored."""
    random = np.random.default_rng(seed)
    ages, work = random.exponential(mean_s, count), random.uniform(0.5, 3.0, count) * mean_s
    plain = Lived(
        run_id="",
        attempt=0,
        cluster="test",
        partition="spot",
        age_s=0.0,
        preempted=True,
        stated_mean_s=STATED_S,
    )
    return [
        dataclasses.replace(
            plain,
            run_id=f"run-{seed}-{i}",
            age_s=float(min(age, through)),
            preempted=bool(age < through),
            **changes,
        )
        for i, (age, through) in enumerate(zip(ages, work, strict=True))
    ]


def decide(known: Coefficients, asked: Request | None = None, **changes: object) -> Decision:
    shape = cluster(dataclasses.replace(SPOT, **changes), BATCH)
    asked = asked or request(epochs=400, partition="spot")
    return plan_request(asked, shape, known, run_id="r", run_dir="/r")


def test_a_law_is_learnt_from_ages_with_censoring() -> None:
    result = refit([], SHIPPED, lived=lived(60))
    (law,) = result.coefficients.learnt.lifetimes
    assert (law.cluster, law.partition, law.attempts) == ("test", "spot", 60)
    assert law.ended == sum(one.preempted for one in lived(60))
    for hours in (1.0, 2.0, 4.0):
        alive = float(law_of(law).survival(hours * HOUR))
        assert alive == pytest.approx(math.exp(-hours / 2.0), abs=0.1)
    (verdict,) = result.verdicts
    assert verdict.promoted
    assert verdict.after < verdict.before
    assert result.coefficients.generation == 1
    assert set(result.coefficients.sources) == {one.run_id for one in lived(60)}


def test_what_never_preempts_and_is_not_said_to_has_no_law() -> None:
    ages = [dataclasses.replace(one, preempted=False, stated_mean_s=0.0) for one in lived(9)]
    assert refit([], SHIPPED, lived=ages).coefficients is SHIPPED
    ages[3] = dataclasses.replace(ages[3], preempted=True)
    (law,) = refit([], SHIPPED, lived=ages).coefficients.learnt.lifetimes
    assert law.ended == 1


def test_the_same_attempts_again_are_old_news() -> None:
    known = refit([], SHIPPED, lived=lived(8)).coefficients
    again = refit([], known, lived=lived(8))
    assert again.coefficients is known
    assert again.verdicts == ()


def test_other_partitions_keep_their_laws() -> None:
    known = refit([], SHIPPED, lived=lived(8)).coefficients
    after = refit([], known, lived=lived(8, partition="cheap")).coefficients
    assert [law.partition for law in after.learnt.lifetimes] == ["cheap", "spot"]
    assert after.learnt.lifetimes[1] == known.learnt.lifetimes[0]


@pytest.mark.parametrize("age_s", [-5.0, math.nan, math.inf, 1e9])
def test_an_age_that_no_clock_gives_is_refused(age_s: float) -> None:
    poison = dataclasses.replace(lived(1, seed=2)[0], age_s=age_s)
    result = refit([], SHIPPED, lived=[*lived(20), poison])
    (refused,) = result.refused
    assert (refused.run_id, refused.term) == (poison.run_id, "lifetime")
    assert result.coefficients.learnt == refit([], SHIPPED, lived=lived(20)).coefficients.learnt


@pytest.mark.parametrize(
    ("age_s", "preempted"), [(0.0, True), (STATED_S, True), (2 * STATED_S, False)]
)
def test_one_wrong_record_moves_a_law_by_little(age_s: float, preempted: bool) -> None:
    poison = dataclasses.replace(lived(1, seed=2)[0], age_s=age_s, preempted=preempted)
    ages = np.linspace(600.0, 8 * HOUR, 50)
    laws = [
        law_of(refit([], SHIPPED, lived=known).coefficients.learnt.lifetimes[0])
        for known in (lived(40), [*lived(40), poison])
    ]
    assert np.abs(laws[0].survival(ages) - laws[1].survival(ages)).max() < 0.15


def test_an_attempt_longer_than_all_others_many_times_is_refused() -> None:
    poison = dataclasses.replace(lived(1, seed=2)[0], age_s=9e7, preempted=False)
    result = refit([], SHIPPED, lived=[*lived(40), poison])
    (refused,) = result.refused
    assert "are the most" in refused.reason
    assert result.coefficients.learnt == refit([], SHIPPED, lived=lived(40)).coefficients.learnt


def test_bins_get_finer_where_preemptions_come_sooner_than_was_stated() -> None:
    (law,) = refit([], SHIPPED, lived=lived(60, mean_s=60.0)).coefficients.learnt.lifetimes
    assert float(law_of(law).survival(60.0)) == pytest.approx(math.exp(-1.0), abs=0.12)


def test_a_law_that_tells_left_out_runs_worse_is_not_promoted() -> None:
    """The law in use, from many runs whose logs are gone, tells these few just as well; what
    the few alone make of them is worse."""
    known = refit([], SHIPPED, lived=lived(400)).coefficients
    result = refit([], known, lived=lived(3, seed=7))
    (held,) = result.held_back
    assert held.key == ("lifetime", "test", "spot")
    assert held.after > held.before + held.tolerance
    assert result.coefficients.learnt.lifetimes == known.learnt.lifetimes


def test_learnt_laws_survive_the_file_and_older_files_have_none() -> None:
    known = refit([], SHIPPED, lived=lived(8)).coefficients
    text = coefficients_to_json(known)
    assert coefficients_from_json(text, source="x") == known
    data = json.loads(text)
    del data["learnt"]["lifetimes"]
    assert coefficients_from_json(json.dumps(data), source="x").learnt.lifetimes == ()
    for broken in ({"edges_s": [2.0, 1.0]}, {"hazards_1_s": [0.1]}, {"mean_s": 0.0}):
        data = json.loads(text)
        data["learnt"]["lifetimes"][0] |= broken
        with pytest.raises(CoefficientsError, match="lifetimes"):
            coefficients_from_json(json.dumps(data), source="x")


def test_the_chosen_rows_figures_are_those_of_the_law() -> None:
    known = refit([], SHIPPED, lived=lived(60)).coefficients
    decision = decide(known, max_time_s=5 * HOUR)
    plan = decision.chosen
    assert plan is not None
    got = plan.prediction
    law = law_of(known.learnt.lifetimes[0])
    failing = plan.nodes / SHIPPED.base.failure.node_mtbf_s.value
    whole = law.joined(Lifetime.exponential(failing)).capped(5 * HOUR)
    expected_s = makespan_s(
        whole,
        got.steps * got.step_s,
        plan.checkpoint_interval_s,
        checkpoint_s=got.checkpoint_s,
        restart_s=got.stage_s + got.start_s + got.checkpoint_s,
        delay_s=120.0,
        cap_notice=1.0,
    )
    assert got.total_s == pytest.approx(expected_s, rel=0.01)
    parts = got.stage_s + got.start_s + got.steps * got.step_s
    parts += got.checkpoints * got.checkpoint_s + got.lost_s
    assert parts == pytest.approx(got.total_s, rel=1e-9)
    (row,) = [row for row in decision.rows if row.chosen]
    assert row.prediction == got
    calm = decide(SHIPPED, max_time_s=5 * HOUR).chosen
    assert calm is not None
    assert plan.checkpoint_interval_s < calm.checkpoint_interval_s / 2
    assert got.lost_s > calm.prediction.lost_s


def test_few_interruptions_leave_the_loss_less_certain_than_many() -> None:
    def spread(count: int) -> float:
        known = refit([], SHIPPED, lived=lived(count)).coefficients
        plan = decide(known, request(epochs=4_000, partition="spot")).chosen
        assert plan is not None
        return plan.prediction.spread.lost_s / plan.prediction.lost_s

    assert spread(200) < spread(4)


def test_notice_that_fits_a_checkpoint_saves_the_work() -> None:
    known = refit([], SHIPPED, lived=lived(60)).coefficients
    with_notice, without = (
        decide(known, grace_s=grace_s).chosen for grace_s in (60.0, AT_ONCE_S)
    )
    assert with_notice is not None
    assert without is not None
    assert with_notice.checkpoint_interval_s > 3 * without.checkpoint_interval_s
    assert with_notice.prediction.total_s < without.prediction.total_s


def test_a_run_that_starts_anew_follows_the_law() -> None:
    known = refit([], SHIPPED, lived=lived(60)).coefficients
    plan = decide(known, request(epochs=40, partition="spot", resumable=False)).chosen
    assert plan is not None
    law = law_of(known.learnt.lifetimes[0])
    failing = plan.nodes / SHIPPED.base.failure.node_mtbf_s.value
    run_s = plan.prediction.total_s - plan.prediction.lost_s
    expected_s = anew_s(law.joined(Lifetime.exponential(failing)), run_s, delay_s=120.0)
    assert plan.prediction.total_s == pytest.approx(expected_s, rel=1e-6)


@pytest.mark.parametrize("kind", ["time", "cost", "node-hours", "deadline"])
@pytest.mark.parametrize("epochs", [40, 400])
def test_the_choice_is_the_best_row_by_the_law(kind: str, epochs: int) -> None:
    known = refit([], SHIPPED, lived=lived(30)).coefficients
    objective = Objective(kind=kind, deadline_s=3e5 if kind == "deadline" else None)
    decision = decide(known, request(epochs=epochs, objective=objective))
    (best,) = [row.prediction for row in decision.rows if row.chosen]
    assert best is not None
    for row in decision.rows:
        if row.prediction is None or (row.deadline_odds or 1.0) < 0.9:
            continue
        if "near tie" in (row.rejected or ""):
            continue
        values = {"time": "total_s", "node-hours": "node_hours"}
        name = values.get(kind, "cost")
        assert getattr(best, name) <= getattr(row.prediction, name) * 1.001


def test_a_partition_that_preempts_at_once_is_left_for_one_that_does_not() -> None:
    asked = request(epochs=4000)
    soon = refit([], SHIPPED, lived=lived(60, mean_s=60.0)).coefficients
    for known, name in ((SHIPPED, "spot"), (soon, "batch")):
        objective = Objective(kind="cost")
        asked = dataclasses.replace(asked, objective=objective)
        chosen = decide(known, asked, price_per_node_hour=0.9).chosen
        assert chosen is not None
        assert chosen.partition == name


def test_interruptions_with_notice_are_all_but_failing_nodes() -> None:
    whole = Lifetime.exponential(3.0 / HOUR).capped(HOUR)
    assert noticed_share(whole, 1.0 / HOUR) == pytest.approx(2.0 / 3.0)
    assert noticed_share(whole, 0.0) == 1.0


def test_the_plan_says_what_was_learnt_of_preemption() -> None:
    known = refit([], SHIPPED, lived=lived(14)).coefficients
    decision = decide(known)
    plan = decision.chosen
    assert plan is not None
    ended = known.learnt.lifetimes[0].ended
    (said,) = [note for note in decision.notes if note.startswith("preempted after")]
    assert f"on average here (14 runs, {ended} ended so), interval" in said
    assert preemption_in_words(plan, known) == said
    cold = preemption_in_words(plan, SHIPPED)
    assert cold.startswith("preempted after 1 d 9 h on average, as stated or assumed")
    assert not any("preempted after" in note for note in decide(SHIPPED).notes)
    calm = decide(SHIPPED, request(partition="batch")).chosen
    assert calm is not None
    assert preemption_in_words(calm, SHIPPED) == ""
