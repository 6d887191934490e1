"""Step times, checkpoints and server clusters fitted on data whose law is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbtrain_perf.fitting.checkpoint import (
    CheckpointFiles,
    CheckpointObservation,
    fit_checkpoints,
)
from sbtrain_perf.fitting.conformal import (
    NORMAL_90,
    Estimate,
    conformal_factor,
    log_estimate,
)
from sbtrain_perf.fitting.parameter_server import (
    Belief,
    ClusterRun,
    ServedNetwork,
    ServerFit,
    calibrated,
    fit_servers,
)
from sbtrain_perf.fitting.relative_regression import fit_relative
from sbtrain_perf.fitting.step_time import Network, StepObservation, fit_step_time

FEATURES = np.column_stack(
    [np.ones(20), np.linspace(1.0, 9.0, 20), np.linspace(3.0, 1.0, 20) ** 2]
)
ORDER = np.arange(20.0)


def test_relative_regression_recovers_its_terms() -> None:
    truth = np.array([0.2, 0.5, 0.1])
    fit = fit_relative(FEATURES, FEATURES @ truth, ORDER, sessions=False)
    assert fit.coefficients == pytest.approx(truth, rel=1e-3)


def test_terms_are_never_negative() -> None:
    measured = FEATURES @ np.array([1.0, -0.02, 0.3])
    fit = fit_relative(FEATURES, measured, ORDER, sessions=True)
    assert (fit.coefficients >= 0).all()


@settings(max_examples=15, deadline=None)
@given(scale=st.floats(1e-6, 1e6))
def test_units_of_the_measurement_do_not_matter(scale: float) -> None:
    noise = np.exp(0.05 * np.sin(7.0 * ORDER))
    measured = FEATURES @ np.array([0.2, 0.5, 0.1]) * noise
    one = fit_relative(FEATURES, measured, ORDER, sessions=True).predict(FEATURES, ORDER)
    many = fit_relative(FEATURES, measured * scale, ORDER, sessions=True).predict(
        FEATURES, ORDER
    )
    assert many.mean - math.log(scale) == pytest.approx(one.mean, abs=1e-6)
    assert many.sd == pytest.approx(one.sd, rel=1e-5)


def test_a_slow_session_is_learnt_from_its_neighbours_and_from_nothing_else() -> None:
    slow = np.where((ORDER >= 10) & (ORDER < 16), 0.2, 0.0)
    truth = np.log(FEATURES @ np.array([0.2, 0.5, 0.1]))
    kept = ORDER != 13
    fit = fit_relative(FEATURES[kept], np.exp(truth + slow)[kept], ORDER[kept], sessions=True)
    inside = fit.predict(FEATURES[13:14], np.array([13.0]))
    unknown = fit.predict(FEATURES[13:14], np.array([math.nan]))
    assert inside.mean[0] - truth[13] == pytest.approx(0.2, abs=0.06)
    assert unknown.mean[0] - truth[13] < 0.12
    assert unknown.sd[0] > inside.sd[0]


def test_conformal_factor_covers_what_it_promises() -> None:
    """Heavy-tailed scores: the normal factor falls short, the conformal one does not."""
    random = np.random.default_rng(7)
    covered, short = [], []
    for _ in range(300):
        scores = random.standard_t(2.5, size=41)
        covered.append(abs(scores[0]) <= conformal_factor(scores[1:]))
        short.append(abs(scores[0]) <= NORMAL_90)
    assert np.mean(short) < 0.86
    assert 0.87 <= np.mean(covered) <= 0.97


def test_conformal_factor_of_nothing_is_the_normal_law() -> None:
    assert conformal_factor([]) == NORMAL_90
    assert conformal_factor([9.0]) > NORMAL_90
    assert conformal_factor([3.0] * 50) > conformal_factor([2.0] * 50)


def test_log_estimate_brackets_its_value() -> None:
    estimate = log_estimate(math.log(4.0), 0.1, factor=2.0)
    assert estimate.value == pytest.approx(4.0)
    assert estimate.low < estimate.value < estimate.high
    assert estimate.high / estimate.value == pytest.approx(estimate.value / estimate.low)


def step_s(network: Network, speed: float) -> float:
    root = math.sqrt(network.parameters * network.tensors)
    return (0.01 + 2e-5 * root + 5e-8 * network.parameters) / speed


NETWORKS = {
    f"n{i}": Network(parameters=300_000 * (i + 1), tensors=50 + 17 * ((i * 7) % 10))
    for i in range(12)
}


def test_step_time_of_an_unseen_network_on_both_gpus() -> None:
    random = np.random.default_rng(3)
    rows = [
        StepObservation(
            gpu=gpu,
            name=name,
            network=network,
            step_s=step_s(network, speed) * math.exp(random.normal(0.0, 0.02)),
        )
        for gpu, speed in (("K80", 1.0), ("P100", 2.5))
        for name, network in NETWORKS.items()
    ]
    fit = fit_step_time(rows)
    unseen = Network(parameters=2_000_000, tensors=120)
    for gpu, speed in (("K80", 1.0), ("P100", 2.5)):
        estimate = fit.predict(unseen, gpu)
        truth = step_s(unseen, speed)
        assert estimate.value == pytest.approx(truth, rel=0.05)
        assert estimate.low < truth < estimate.high
    far = fit.predict(Network(parameters=200_000_000, tensors=1500), "K80")
    near = fit.predict(unseen, "K80")
    assert far.high / far.low > near.high / near.low
    placed = fit.predict(unseen, "V100")
    assert placed.high / placed.low > 1.4
    with pytest.raises(LookupError, match="Voodoo2"):
        fit.predict(unseen, "Voodoo2")


def test_checkpoint_of_an_unseen_network() -> None:
    random = np.random.default_rng(5)

    def seconds(files: CheckpointFiles) -> float:
        return 3.0 + 0.2 * files.meta_mb + 0.02 * files.data_mb

    files = [CheckpointFiles(data_mb=6.0 + 15.0 * i, meta_mb=1.0 + i % 4) for i in range(12)]
    rows = [
        CheckpointObservation(
            name=str(i),
            files=file,
            durations_s=tuple(
                seconds(file) * math.exp(random.normal(0.0, 0.05)) for _ in range(5)
            ),
        )
        for i, file in enumerate(files)
    ]
    fit = fit_checkpoints(rows)
    unseen = CheckpointFiles(data_mb=80.0, meta_mb=2.5)
    estimate = fit.predict(unseen)
    assert estimate.value == pytest.approx(seconds(unseen), rel=0.05)
    assert fit.save_sd == pytest.approx(0.05, rel=0.3)
    saves = [seconds(unseen) * math.exp(random.normal(0.0, 0.05)) for _ in range(400)]
    assert 0.85 < np.mean([estimate.low < s < estimate.high for s in saves]) < 0.995


SMALL = ServedNetwork(name="small", parameters=2_000_000, tensors=100)
EVEN = ServedNetwork(
    name="even", parameters=2_000_000, tensors=100, variables=(20_000, 200) * 100
)
STEPS = {("small", "P100"): Belief(mean=math.log(0.08), sd=0.05)}


def cluster_speed(workers: int, servers: int = 1, *, capacity: float = 45.0) -> float:
    demand, supply = workers / 0.08, capacity * servers**0.5
    return float((demand**-8 + supply**-8) ** (-1 / 8))


def runs(workers: range, *, capacity: float = 45.0, name: str = "small") -> list[ClusterRun]:
    random = np.random.default_rng(11)
    return [
        ClusterRun(
            network=name,
            workers=(("P100", count),),
            servers=1,
            updates_1_s=cluster_speed(count, capacity=capacity)
            * math.exp(random.normal(0.0, 0.01)),
        )
        for count in workers
    ]


def most_updates_1_s(fit: ServerFit, network: str, servers: int) -> float:
    """What the servers can apply, with more workers than they can serve."""
    many = ClusterRun(network=network, workers=(("P100", 500),), servers=servers)
    return fit.predict(many).value


@pytest.mark.parametrize("capacity", [35.0, 45.0])
def test_capacity_is_learnt_from_small_clusters(capacity: float) -> None:
    fit = fit_servers(runs(range(1, 5), capacity=capacity), [SMALL], STEPS)
    eight = fit.predict(ClusterRun(network="small", workers=(("P100", 8),), servers=1))
    assert eight.value == pytest.approx(cluster_speed(8, capacity=capacity), rel=0.1)
    assert eight.low < cluster_speed(8, capacity=capacity) < eight.high
    assert most_updates_1_s(fit, "small", 1) == pytest.approx(capacity, rel=0.15)


def test_what_was_never_saturated_stays_uncertain() -> None:
    few = fit_servers(runs(range(1, 3)), [SMALL], STEPS)
    many = fit_servers(runs(range(1, 9)), [SMALL], STEPS)
    eight = ClusterRun(network="small", workers=(("P100", 8),), servers=1)
    assert few.log_law(eight).sd > 2.0 * many.log_law(eight).sd


def test_one_bad_run_does_not_move_the_fit() -> None:
    good = runs(range(1, 9))
    bad = ClusterRun(network="small", workers=(("P100", 2),), servers=1, updates_1_s=2.0)
    eight = ClusterRun(network="small", workers=(("P100", 8),), servers=1)
    clean = fit_servers(good, [SMALL], STEPS).predict(eight)
    poisoned = fit_servers([*good, bad], [SMALL], STEPS).predict(eight)
    assert poisoned.value == pytest.approx(clean.value, rel=0.05)


def test_workers_of_two_kinds_add_their_demand() -> None:
    steps = STEPS | {("small", "K80"): Belief(mean=math.log(0.2), sd=0.05)}
    fit = fit_servers(runs(range(1, 5)), [SMALL], steps)
    mixed = ClusterRun(network="small", workers=(("K80", 3), ("P100", 1)), servers=1)
    assert fit.predict(mixed).value == pytest.approx(3 / 0.2 + 1 / 0.08, rel=0.08)


def test_a_second_server_helps_little_where_one_holds_all_kernels() -> None:
    steps = {("even", "P100"): Belief(mean=math.log(0.08), sd=0.05)}
    fit = fit_servers(runs(range(1, 5), name="even"), [EVEN], steps)
    one, two, three = (most_updates_1_s(fit, "even", servers) for servers in (1, 2, 3))
    gain, odd = two / one, three / one
    assert 1.0 <= gain < 1.8
    assert odd > gain


def test_intervals_grow_with_errors_on_left_out_runs() -> None:
    known = runs(range(1, 5))
    fit = fit_servers(known, [SMALL], STEPS)
    part = fit_servers(known[:2], [SMALL], STEPS)
    wrong = [
        ClusterRun(network="small", workers=(("P100", 3),), servers=1, updates_1_s=9.0)
    ] * 12
    asked = wrong[0]
    plain, widened = calibrated(fit, []), calibrated(fit, [(part, wrong)])
    assert width(widened.predict(asked)) > 2.0 * width(plain.predict(asked))


def test_intervals_of_one_gpu_do_not_hang_on_anothers_errors() -> None:
    """K80 never met the server's limit: what went wrong past it is the P100's."""
    steps = STEPS | {("small", "K80"): Belief(mean=math.log(0.3), sd=0.05)}
    slow = [
        ClusterRun(network="small", workers=(("K80", n),), servers=1, updates_1_s=n / 0.3)
        for n in range(1, 5)
    ]
    fit = fit_servers([*slow, *runs(range(1, 5))], [SMALL], steps)
    part = fit_servers([*slow[:2], *runs(range(1, 3))], [SMALL], steps)
    wrong = [
        ClusterRun(network="small", workers=(("P100", 3),), servers=1, updates_1_s=9.0)
    ] * 12
    found = calibrated(fit, [(part, [*slow[2:] * 6, *wrong])])
    assert found.factors["K80"] < 0.5 * found.factors["P100"]
    assert width(found.predict(slow[3])) < 0.5 * width(found.predict(wrong[0]))


def width(estimate: Estimate) -> float:
    return math.log(estimate.high / estimate.low)


def test_unknown_network_is_named() -> None:
    fit = fit_servers(runs(range(1, 3)), [SMALL], STEPS)
    with pytest.raises(KeyError, match="other"):
        fit.predict(ClusterRun(network="other", workers=(("P100", 1),), servers=1))
