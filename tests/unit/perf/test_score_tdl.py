"""Whole training runs: configurations and GPUs that the fit has not seen, revocations."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from csv_files import write

from sbtrain_perf.score import tdl
from sbtrain_perf.score.metrics import Point

STEPS = 64_000
STEP_S = {"k80": 0.22, "p100": 0.083, "v100": 0.065}
SPREAD = (0.985, 0.995, 1.0, 1.004, 1.012)


def speed(counts: Mapping[str, int], *, capacity: float = 45.0) -> float:
    demand = sum(count / STEP_S[gpu] for gpu, count in counts.items())
    return float((demand**-8 + capacity**-8) ** (-1 / 8))


def jobs(
    experiment: str,
    *,
    k80: int = 0,
    p100: int = 0,
    v100: int = 0,
    shares: Sequence[float] = SPREAD,
) -> list[dict[str, object]]:
    level = speed({"k80": k80, "p100": p100, "v100": v100})
    return [
        {
            "experiment": experiment,
            "config": f"{k80}-{p100}-{v100}",
            "n_ps": 1,
            "n_k80": k80,
            "n_p100": p100,
            "n_v100": v100,
            "duration_s": STEPS / (level * share),
            "avg_steps_s": level * share,
        }
        for share in shares
    ]


KNOWN = [
    *jobs("demand", k80=1),
    *jobs("demand", k80=2),
    *jobs("demand", k80=4),
    *jobs("demand", p100=1),
    *jobs("demand", p100=4),
    *jobs("k80_spot", k80=2, shares=(*SPREAD, *SPREAD, 0.55, 0.8, 0.9)),
    *jobs("k80_spot", k80=4, shares=(*SPREAD, *SPREAD, 0.75, 0.85, 0.95)),
]


@pytest.fixture
def fit(tmp_path: Path) -> Path:
    folder = tmp_path / "fit"
    network = {"model": "resnet32", "n_params": 1_857_722, "n_tensors": 104}
    write(folder, "cmdare/models.csv", [network])
    write(
        folder,
        "cmdare/speed_single_worker.csv",
        [
            {"gpu": gpu.upper(), "model": "resnet32", "step_time_mean_s": STEP_S[gpu]}
            for gpu in ("k80", "p100")
        ],
    )
    write(folder, tdl.NAME + "/training_jobs.csv", KNOWN)
    return folder


def predicted(fit: Path, held: Path, rows: Sequence[Mapping[str, object]]) -> list[Point]:
    write(held, tdl.NAME + "/training_jobs.csv", rows)
    return tdl.points(fit, held)["ours"]


def test_more_workers_than_fitted_meet_the_servers_capacity(fit: Path, tmp_path: Path) -> None:
    for workers, most in ((6, 6.0), (8, 8.0)):
        (point, *_) = predicted(fit, tmp_path, jobs("demand", k80=workers, shares=(1.0,)))
        assert point.ape < most
        assert point.covered


def test_mixed_gpus_add_up_until_the_server_saturates(fit: Path, tmp_path: Path) -> None:
    mixed = [
        *jobs("mixed_gpu", k80=2, p100=1, shares=(1.0,)),
        *jobs("mixed_gpu", k80=3, p100=2, shares=(1.0,)),
        *jobs("mixed_gpu", k80=1, p100=1, v100=1, shares=(1.0,)),
    ]
    points = predicted(fit, tmp_path, mixed)
    assert statistics.fmean(point.ape for point in points[:2]) < 6.0
    assert points[2].ape < 25.0  # a V100 that nobody measured, placed by its figures
    assert points[2].width > points[0].width
    assert all(point.covered for point in points)


def test_what_revocations_may_take_is_in_the_interval(fit: Path, tmp_path: Path) -> None:
    (spot,) = predicted(fit, tmp_path, jobs("k80_spot", k80=3, shares=(1.0,)))
    (safe,) = predicted(fit, tmp_path, jobs("demand", k80=3, shares=(1.0,)))
    assert spot.low < 0.9 * safe.low
    assert spot.predicted == pytest.approx(safe.predicted, rel=0.03)
    assert spot.high == pytest.approx(safe.high, rel=0.05)


def test_an_unseen_experiment_is_less_certain(fit: Path, tmp_path: Path) -> None:
    (seen,) = predicted(fit, tmp_path, jobs("demand", k80=3, shares=(1.0,)))
    (unseen,) = predicted(fit, tmp_path, jobs("elsewhere", k80=3, shares=(1.0,)))
    assert unseen.predicted == pytest.approx(seen.predicted, rel=0.01)
    assert unseen.width > seen.width


def test_neither_speed_nor_duration_of_the_scored_rows_leaks(fit: Path, tmp_path: Path) -> None:
    rows = [*jobs("k80_spot", k80=8), *jobs("mixed_gpu", k80=1, p100=1)]
    slow = [{**row, "avg_steps_s": 1.0, "duration_s": 9.0} for row in rows]
    for one, other in zip(
        predicted(fit, tmp_path / "a", rows), predicted(fit, tmp_path / "b", slow), strict=True
    ):
        assert (one.predicted, one.low, one.high) == (other.predicted, other.low, other.high)


def test_one_run_in_all_is_enough_to_answer(fit: Path, tmp_path: Path) -> None:
    write(fit, tdl.NAME + "/training_jobs.csv", jobs("demand", k80=1, shares=(1.0,)))
    (point,) = predicted(fit, tmp_path, jobs("k80_spot", k80=4, shares=(1.0,)))
    assert point.ape < 10.0
    assert point.low < 0.95 * point.predicted
