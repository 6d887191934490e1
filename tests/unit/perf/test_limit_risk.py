"""Time limits of runs that cannot resume, restarts that a site does not allow."""

from __future__ import annotations

import dataclasses
import math
from statistics import NormalDist

import numpy as np
import pytest
from decisions import chosen_row, cluster, decide, figures, partition, request

from sbtrain_perf.decision import odds_in_words
from sbtrain_perf.intervals import Deviations
from sbtrain_perf.limit_risk import kept_share
from sbtrain_perf.request import NodeRange, Objective, Partition

ONCE = {"resumable": False, "layout": "allreduce", "nodes": NodeRange(low=4, high=4)}


def predicted_s(*partitions: Partition) -> float:
    plan = decide(request(**ONCE), cluster(*partitions)).chosen
    assert plan is not None
    return plan.prediction.total_s


@pytest.mark.parametrize("room", [0.5, 0.9, 1.0, 1.3, 4.0])
def test_the_share_that_is_kept_is_that_of_a_log_normal_sum(room: float) -> None:
    """Of one part that rules, the normal law's own distribution."""
    parts = np.array([[50.0], [0.0], [0.0], [1000.0], [0.0]])
    sds = np.array([[0.5], [0.5], [0.5], [0.4], [0.5]])
    nothing = np.zeros(1)
    deviations = Deviations(parts_s=parts, log_sd=sds, lost_s=nothing, lost_sd_s=nothing)
    (kept,) = kept_share(deviations, np.array([1000.0 * room]))  # the queue does not count
    assert kept == pytest.approx(NormalDist().cdf(math.log(room) / 0.4), abs=2e-3)


def test_a_deadline_is_kept_no_surer_than_the_time_limit() -> None:
    takes_s = predicted_s()
    tight = cluster(partition("tight", max_time_s=1.05 * takes_s))
    asked = request(
        objective=Objective(kind="deadline", deadline_s=50 * takes_s, sure=0.5), **ONCE
    )
    row = chosen_row(decide(asked, tight))
    assert row.deadline_odds is not None
    assert 0.45 < row.deadline_odds < 0.6
    loose = chosen_row(decide(asked, cluster())).deadline_odds
    assert loose is not None
    assert loose > 0.99


def test_a_run_that_may_be_cut_says_so_and_goes_where_it_is_not() -> None:
    takes_s = predicted_s()
    tight = partition("tight", max_time_s=1.05 * takes_s, price_per_node_hour=0.99)
    alone = decide(request(**ONCE), cluster(tight))
    (note,) = [r for r in alone.risks if "ends before the time limit" in r]
    assert "let it resume" in note
    both = decide(request(**ONCE), cluster(tight, partition("long")))
    assert chosen_row(both).partition == "long"
    (cut,) = [r for r in both.rows if r.partition == "tight"]
    assert 50.0 <= figures(cut.rejected)[0] < 60.0
    resumes = dict(ONCE, resumable=True)
    free = decide(request(**resumes), cluster(tight, partition("long")))
    assert not any("before the time limit" in r for r in free.risks)


def test_more_restarts_than_the_site_allows_are_refused() -> None:
    spot = partition("spot", preemptible=True, mean_time_to_preemption_s=7200.0)
    asked = request(epochs=20_000, nodes=NodeRange(low=1, high=1), layout="allreduce")
    shape = cluster(spot)
    refused = decide(asked, shape)
    assert refused.chosen is None
    assert shape.max_requeues in figures(refused.refusal)
    patient = decide(asked, dataclasses.replace(shape, max_requeues=100_000))
    assert patient.chosen is not None
    firm = decide(asked, cluster(spot, partition("firm")))
    assert chosen_row(firm).partition == "firm"
    never = dataclasses.replace(shape, max_requeues=0)
    assert decide(dataclasses.replace(asked, epochs=1), never).chosen is not None


@pytest.mark.parametrize("gbit", [0.01, 1.0])
def test_servers_cannot_move_more_than_their_links(gbit: float) -> None:
    link = gbit * 1.25e8
    shape = cluster(partition(network_bytes_s=link, nodes=40, max_nodes_per_job=40))
    asked = request(steps=20_000, epochs=None, layout="ps")
    decision = decide(asked, shape)
    for row in decision.rows:
        if row.prediction is not None and row.servers:
            moved_s = 4e6 / (link * row.servers)  # each gradient once, over all links
            assert row.prediction.step_s >= moved_s * (1 - 1e-9)
            pulled_s = 8e6 * (1 / link - 8e-10)
            assert row.prediction.step_s * row.workers >= pulled_s * (1 - 1e-9)


def test_a_preempted_run_that_cannot_resume_is_said_to_be_lost() -> None:
    spot = partition("spot", preemptible=True, mean_time_to_preemption_s=1e6)
    (risk,) = decide(request(resumable=False), cluster(spot)).risks
    assert "not requeued" in risk
    assert decide(request(), cluster(partition())).risks == ()


def test_more_time_than_any_partition_gives_is_refused() -> None:
    week = partition("week", max_time_s=7 * 86_400.0)
    asked = request(time_limit_s=30 * 86_400.0)
    refused = decide(asked, cluster(week))
    assert refused.chosen is None
    assert {30.0, 7.0} <= set(figures(refused.refusal))
    assert chosen_row(decide(asked, cluster(week, partition("long")))).partition == "long"


def test_more_cpus_than_threads_is_refused() -> None:
    refused = decide(request(sbatch_options=("--cpus-per-task=999",)), cluster())
    assert {999.0, 16.0} <= set(figures(refused.refusal))
    fits = request(sbatch_options=("--cpus-per-task=32",))
    assert decide(fits, cluster()).chosen is not None


@pytest.mark.parametrize(
    ("odds", "words"),
    [
        (0.004, "less than 1 %"),
        (0.0199, "1 %"),
        (0.9, "90 %"),
        (0.9049, "90 %"),
        (0.9949, "99.4 %"),
        (0.998, "99.8 %"),
        (0.9995, "more than 99.9 %"),
    ],
)
def test_odds_are_never_said_greater_than_they_are(odds: float, words: str) -> None:
    assert odds_in_words(odds) == words
