"""Multi-GPU rates: every run that ran is scored, the wider the less is known of one GPU."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from csv_files import write

from sbtrain_perf.score import gavel
from sbtrain_perf.score.metrics import Point
from sbtrain_perf.score.one_gpu_rates import OneGpu, OneGpuRates
from sbtrain_perf.score.tables import ScoreError

ONE_GPU_S = {("net", "A"): 0.1, ("net", "B"): 0.04, ("other", "A"): 0.2, ("other", "B"): 0.08}
BATCHES = (16.0, 64.0)


def run(**cells: object) -> dict[str, object]:
    usual = {
        "source_file": "one",
        "gpu": "A",
        "consolidated": "True",
        "model": "net",
        "batch_size_per_gpu": 16.0,
        "num_gpus": 4,
        "steps_per_s": 4 * 0.9 / 0.1,
    }
    return {**usual, **cells}


def measured() -> list[dict[str, object]]:
    """A step grows as the batch's power 3/4; several GPUs keep 90 % of their speed."""
    return [
        run(
            gpu=gpu,
            model=model,
            batch_size_per_gpu=batch,
            num_gpus=gpus,
            consolidated=packed,
            steps_per_s=gpus * (1.0 if gpus == 1 else 0.9) / step_s / (batch / 16.0) ** 0.75,
        )
        for (model, gpu), step_s in ONE_GPU_S.items()
        for batch in BATCHES
        for gpus in (1, 2, 4)
        for packed in ("True", "False")
    ]


@pytest.fixture
def fit(tmp_path: Path) -> Path:
    return write(tmp_path / "fit", gavel.FILE, measured())


def scored(fit: Path, tmp_path: Path, *rows: dict[str, object]) -> list[Point]:
    return gavel.points(fit, write(tmp_path / "score", gavel.FILE, rows))["ours"]


def test_a_batch_is_a_number(fit: Path, tmp_path: Path) -> None:
    short, long = scored(
        fit, tmp_path, run(batch_size_per_gpu="16"), run(batch_size_per_gpu="16.0")
    )
    assert short == long
    assert short.ape < 5.0


def test_what_is_further_from_the_fit_is_predicted_with_more_doubt(
    fit: Path, tmp_path: Path
) -> None:
    rows = (
        run(),
        run(source_file="two"),
        run(batch_size_per_gpu=32.0, steps_per_s=36.0 / 2.0**0.75),
        run(gpu="C"),
        run(model="nobody"),
    )
    points = scored(fit, tmp_path, *rows)
    widths = [point.high / point.low for point in points]
    assert widths == sorted(widths)
    assert all(wide > 1.3 * narrow for narrow, wide in itertools.pairwise(widths))
    assert all(point.covered for point in points)
    assert points[1].predicted == pytest.approx(points[0].predicted)
    assert points[2].ape < 10.0


def test_another_gpu_is_reached_by_what_both_ran(tmp_path: Path) -> None:
    kept = [row for row in measured() if (row["model"], row["gpu"]) != ("net", "B")]
    fit = write(tmp_path / "fit", gavel.FILE, kept)
    (point,) = scored(fit, tmp_path, run(gpu="B", steps_per_s=4 * 0.9 / 0.04))
    assert point.ape < 20.0  # as on the other GPU it were 150


def test_every_row_that_ran_is_counted(fit: Path, tmp_path: Path) -> None:
    rows = [
        run(gpu="V", model="net", num_gpus=8, steps_per_s=50.0),
        run(gpu="V", model="nobody", batch_size_per_gpu="", steps_per_s=50.0),
        run(steps_per_s=0.0),  # failed
        run(steps_per_s=""),
        run(num_gpus=1),
    ]
    scores = gavel.score(fit, write(tmp_path / "score", gavel.FILE, rows))
    counts = {(score.group, score.model): score.n for score in scores}
    assert counts["all", "ours"] == counts["all", "linear scaling"] == 2


def test_what_was_measured_itself_is_certain() -> None:
    what = OneGpu(source="one", gpu="A", network="net", batch=8.0)
    rates = OneGpuRates([(what, 0.3), (what, 0.1), (what, 0.2)])
    assert rates.step_s(what) == 0.2
    assert rates.belief(what).sd == 0.0


@pytest.mark.parametrize(
    ("written", "packed"),
    [("True", 1), ("true", 1), ("TRUE", 1), ("1", 1), ("false", 0), ("FALSE", 0), ("0", 0)],
)
def test_consolidated_may_be_written_in_any_usual_way(
    tmp_path: Path, written: str, packed: int
) -> None:
    (rate,) = gavel.read_rates(write(tmp_path, gavel.FILE, [run(consolidated=written)]))
    assert rate.packed == bool(packed)


@pytest.mark.parametrize("written", ["yes", "", "2", "nan"])
def test_consolidated_that_says_nothing_is_refused(tmp_path: Path, written: str) -> None:
    folder = write(tmp_path, gavel.FILE, [run(consolidated=written)])
    with pytest.raises(ScoreError, match=r"throughputs.csv:2: consolidated = .* neither"):
        gavel.read_rates(folder)


def test_a_fit_without_rates_is_named(fit: Path, tmp_path: Path) -> None:
    held = write(tmp_path / "held", gavel.FILE, [run()])
    with pytest.raises(ScoreError, match=r"--fit: .*no rates of one GPU"):
        gavel.points(tmp_path / "empty", held)
    alone = write(tmp_path / "alone", gavel.FILE, [run(num_gpus=1)])
    with pytest.raises(ScoreError, match=r"--fit: .*no rates of several GPUs"):
        gavel.points(alone, held)
    with pytest.raises(ScoreError, match=r"--score: .*no rows of gavel"):
        gavel.points(fit, alone)
