"""Intervals hold what they promise: against sampled sums, and over simulated runs."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from attempts import attempt, synchronous_s

from sbtrain_perf.coefficients import Coefficients, load_coefficients
from sbtrain_perf.intervals import NORMAL_90, Deviations, normal_share, student_factor
from sbtrain_perf.measured import measure_attempts
from sbtrain_perf.models.parameter_server import update_s
from sbtrain_perf.planner import plan_request
from sbtrain_perf.refit import refit
from sbtrain_perf.request import (
    ClusterShape,
    DataSet,
    Layout,
    ModelShape,
    NodeRange,
    Partition,
    Prediction,
    Request,
)
from sbtrain_perf.timing_log import AttemptTimings

SHIPPED = load_coefficients()
CLUSTER = ClusterShape(
    name="private",
    source="test.toml",
    partitions=(
        Partition(
            name="spot",
            nodes=32,
            max_nodes_per_job=32,
            cores_per_node=4,
            memory_gib_per_node=15,
            scratch_path="/tmp/%n",
        ),
    ),
    shared_bytes_s=1e9,
    shared_client_bytes_s=5e8,
)


def predict(
    coefficients: Coefficients, *, nodes: int, layout: Layout = "allreduce"
) -> Prediction:
    request = Request(
        script="train_digits.py",
        workload="train_digits",
        steps=400,
        batch_per_worker=32,
        layout=layout,
        servers=1 if layout == "ps" else None,
        nodes=NodeRange(low=nodes, high=nodes),
        data=DataSet(paths=("/d",), total_bytes=10**8),
        model=ModelShape(parameters=1_857_722, tensors=104),
        resumable=True,
    )
    decision = plan_request(request, CLUSTER, coefficients, run_id="r", run_dir="/r")
    assert decision.chosen is not None
    return decision.chosen.prediction


@dataclasses.dataclass(frozen=True)
class Truth:
    """What simulated runs are drawn from: the closed forms, off the shipped ones by as much
    as those are said to be, and runs that differ."""

    compute_s: float
    transfer_s: float
    hop_s: float
    server_s: float
    start_s: float
    stage_s: float
    noise: float
    random: np.random.Generator

    @classmethod
    def drawn(cls, seed: int) -> Truth:
        random = np.random.default_rng(seed)
        own = SHIPPED.base.spread

        def off(sd: float) -> float:
            return math.exp(random.normal(0.0, sd))

        # The prior of the noise: usual_samples of the usual spread.
        samples = own.noise_samples.value
        noise = own.run.value * math.sqrt(samples / random.chisquare(samples))
        return cls(
            compute_s=0.05 * off(own.compute.value),
            transfer_s=0.02 * off(own.transfer.value),
            hop_s=1e-4 * off(own.hop.value),
            server_s=0.021 * off(own.server.value),
            start_s=12.0 * off(own.start.value),
            stage_s=1.2 * off(own.stage.value),
            noise=noise,
            random=random,
        )

    def differs(self) -> float:
        return math.exp(self.random.normal(0.0, self.noise))

    def step(self, nodes: int, layout: Layout) -> float:
        if layout == "allreduce":
            return synchronous_s(self.compute_s, self.transfer_s, self.hop_s, nodes=nodes)
        server = SHIPPED.base.server
        return float(
            update_s(
                self.compute_s,
                self.server_s,
                workers=nodes - 1,
                share=1.0,
                sharpness=server.sharpness.value,
            )
        )

    def run(self, index: int, *, nodes: int, layout: Layout) -> AttemptTimings:
        step = self.step(nodes, layout) * self.differs()
        save = 0.35 * self.differs()
        made = attempt(
            run_id=f"run-{index}",
            layout=layout,
            nodes=nodes,
            servers=1 if layout == "ps" else 0,
            step_s=step,
            start_s=self.start_s * self.differs(),
            stage_s=self.stage_s * self.differs(),
            saves=((save, 1.58e7),),
            steps=400,
        )
        phases = tuple(
            dataclasses.replace(
                p, numbers={**p.numbers, "parameters": 1_857_722.0, "tensors": 104.0}
            )
            if p.name == "start"
            else p
            for p in made.phases
        )
        return dataclasses.replace(made, phases=phases)


def taken_s(run: AttemptTimings, steps: int) -> float:
    """What the terms of a run add up to, as refit measures them."""
    seconds = {s.term: s.seconds for s in measure_attempts((run,)).samples}
    return seconds["stage"] + seconds["start"] + steps * seconds["step"] + seconds["checkpoint"]


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "least", "most"), [(12, 0.8, 0.98), (60, 0.85, 0.95)])
@pytest.mark.parametrize("layout", ["allreduce", "ps"])
def test_nine_in_ten_runs_end_within_their_interval(
    layout: Layout, seeds: int, least: float, most: float
) -> None:
    """Simulated runs, refit, planned again: on measured node counts and on others."""
    totals, steps, runs = 0, 0, 0
    for learnt, asked in (((2,), 2), ((2, 2, 4), 4), ((2, 3, 4, 6, 8, 8), 3), ((2, 4), 8)):
        for seed in range(seeds):
            truth = Truth.drawn(seed)
            past = [truth.run(i, nodes=n, layout=layout) for i, n in enumerate(learnt)]
            fitted = refit(past, SHIPPED).coefficients
            prediction = predict(fitted, nodes=asked, layout=layout)
            new = truth.run(99, nodes=asked, layout=layout)
            low, high = prediction.total_low_s, prediction.total_high_s
            assert low is not None
            assert high is not None
            totals += low <= taken_s(new, prediction.steps) <= high
            (step,) = (s.seconds for s in measure_attempts((new,)).samples if s.term == "step")
            steps += (prediction.step_low_s or 0.0) <= step <= (prediction.step_high_s or 0.0)
            runs += 1
    assert least <= totals / runs <= most
    assert least <= steps / runs <= most


def test_more_runs_make_narrower_intervals_and_other_node_counts_wider_ones() -> None:
    truth = dataclasses.replace(Truth.drawn(1), noise=0.05)

    def width(learnt: tuple[int, ...], asked: int) -> float:
        past = [truth.run(i, nodes=n, layout="allreduce") for i, n in enumerate(learnt)]
        prediction = predict(refit(past, SHIPPED).coefficients, nodes=asked)
        return math.log((prediction.step_high_s or 0.0) / (prediction.step_low_s or 1.0))

    cold = predict(SHIPPED, nodes=2)
    assert cold.step_high_s is not None
    assert cold.step_low_s is not None
    assert width((2,) * 12, 2) < width((2,), 2) < math.log(cold.step_high_s / cold.step_low_s)
    assert width((2, 4), 4) < width((2, 4), 8) < width((2, 4), 32)


def deviations(
    parts: list[float], sds: list[float], *, lost: float = 0.0, sd: float = 0.0
) -> Deviations:
    return Deviations(
        parts_s=np.array(parts)[:, None],
        log_sd=np.array(sds)[:, None],
        lost_s=np.array([lost]),
        lost_sd_s=np.array([sd]),
    )


@pytest.mark.parametrize(
    ("parts", "sds"),
    [
        ([0.0, 3.0, 12.0, 100.0, 2.0], [0.7, 0.1, 0.1, 0.1, 0.1]),
        ([0.0, 3.0, 12.0, 100.0, 2.0], [0.7, 0.5, 0.4, 0.9, 0.5]),
        ([50.0, 30.0, 40.0, 60.0, 20.0], [0.2, 0.2, 0.2, 0.2, 0.2]),
    ],
)
def test_quantiles_are_those_of_sampled_sums(parts: list[float], sds: list[float]) -> None:
    """Within 3 points of coverage of 20,000 sampled totals."""
    random = np.random.default_rng(1)
    totals = (np.array(parts) * np.exp(random.normal(0.0, 1.0, (20_000, 5)) * sds)).sum(axis=1)
    one = deviations(parts, sds)
    low, high = one.total_s(-NORMAL_90)[0], one.total_s(NORMAL_90)[0]
    assert np.mean((low <= totals) & (totals <= high)) == pytest.approx(0.9, abs=0.03)
    limit = float(np.quantile(totals, 0.7))
    assert one.odds(limit)[0] == pytest.approx(0.7, abs=0.05)


def test_the_odds_of_what_never_ends_and_of_what_is_certain() -> None:
    never = deviations([0.0, 1.0, 1.0, 5.0, 0.0], [0.1] * 5, lost=math.inf, sd=math.inf)
    assert never.total_s(-1.0)[0] == math.inf
    assert never.odds(1e9)[0] == 0.0
    certain = deviations([0.0, 0.0, 0.0, 5.0, 0.0], [0.0, 0.0, 0.0, 1e-3, 0.0])
    assert certain.odds(6.0)[0] == 1.0
    assert certain.odds(5.0)[0] == pytest.approx(0.5)


def test_interruptions_that_may_not_come_do_not_make_a_total_negative() -> None:
    one = deviations([0.0, 0.0, 0.0, 5.0, 0.0], [0.0, 0.0, 0.0, 0.1, 0.0], lost=3.0, sd=40.0)
    assert 4.0 < one.total_s(-NORMAL_90)[0] < 8.0
    assert one.total_s(NORMAL_90)[0] > 60.0


@pytest.mark.parametrize(("degrees", "quantile"), [(4, 2.132), (8, 1.860), (30, 1.697)])
def test_student_against_its_table(degrees: float, quantile: float) -> None:
    assert student_factor(degrees) * NORMAL_90 == pytest.approx(quantile, rel=0.01)
    assert normal_share(NORMAL_90) == pytest.approx(0.95, abs=1e-4)
