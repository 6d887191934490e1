"""The Pollux scorer on the public rows beside the checkout, a part held back."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from sbtrain_perf.score import pollux
from sbtrain_perf.score.tables import ScoreError, ScoreRow

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
COLUMNS = [
    "model",
    "placement",
    "num_nodes",
    "num_replicas",
    "local_bsz",
    "step_time_s",
    "sync_time_s",
]


def write(folder: Path, rows: list[dict[str, str]]) -> Path:
    (folder / "pollux").mkdir(parents=True)
    with (folder / pollux.FILE).open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return folder


@pytest.fixture
def rows() -> list[dict[str, str]]:
    source = DATA / pollux.FILE
    if not source.is_file():
        pytest.skip("the public measurements do not lie beside the checkout")
    with source.open(newline="") as file:
        return list(csv.DictReader(file))


def test_ours_beats_pollux_on_rows_held_back(
    tmp_path: Path, rows: list[dict[str, str]]
) -> None:
    small = [row for row in rows if row["model"] in ("bert", "cifar10", "yolov3")]
    held = small[::5]
    kept = [row for i, row in enumerate(small) if i % 5]
    scores = pollux.score(write(tmp_path / "fit", kept), write(tmp_path / "score", held))
    mape = {(score.group, score.model): score.mape for score in scores}
    assert {score.group for score in scores} == {"<=4", "6", "bert", "cifar10", "yolov3"}
    assert mape["<=4", "ours"] < min(8.0, mape["<=4", "pollux"])
    (ours,) = (s for s in scores if (s.group, s.model) == ("<=4", "ours"))
    assert 0.80 <= ours.coverage90 <= 1.0


def test_rows_without_a_placement_are_spread_evenly() -> None:
    row = {"model": "m", "num_nodes": "6", "num_replicas": "14", "local_bsz": "8"}
    read = ScoreRow(source="here", cells={**row, "placement": "", "step_time_s": "1"})
    steps = pollux.step_rows(pollux.Table(rows=(read,)))
    assert steps.shape.tolist() == ["222233"]
    assert (steps.most_gpus[0], steps.fewest_gpus[0], steps.replicas[0]) == (3, 2, 14)


def made(model: str, batch: str, step_s: float) -> dict[str, str]:
    cells = {"placement": "1", "local_bsz": batch, "sync_time_s": "0.0"}
    return {**cells, "model": model, "step_time_s": str(step_s)}


def test_an_unfitted_workload_is_placed_among_the_others_and_wide(tmp_path: Path) -> None:
    fit = write(tmp_path / "fit", [made("short", "8", 0.1), made("long", "8", 0.4)])
    held = write(tmp_path / "score", [made("other", "8", 1.0), made("short", "8", 0.1)])
    other, known = pollux.points(fit, held)["ours"]
    assert other.predicted == pytest.approx(0.2, rel=0.1)
    assert other.low < 0.05
    assert other.high > 0.8
    assert known.width < 0.3 * other.width
    (row,) = (s for s in pollux.score(fit, held) if (s.group, s.model) == ("other", "ours"))
    assert row.n == 1


def test_one_fitted_workload_says_little_of_another(tmp_path: Path) -> None:
    fit = write(tmp_path / "fit", [made("short", "8", 0.1)])
    (point,) = pollux.points(fit, write(tmp_path / "score", [made("other", "8", 0.3)]))["ours"]
    assert point.covered


def test_a_missing_placement_column_is_as_good_as_a_blank_one() -> None:
    cells = {"model": "m", "num_nodes": "2", "num_replicas": "3", "local_bsz": "8"}
    row = ScoreRow(source="here", cells={**cells, "step_time_s": "1"})
    assert pollux.step_rows(pollux.Table(rows=(row,))).shape.tolist() == ["12"]


def test_many_gpus_on_a_node_are_no_other_placement() -> None:
    cells = {"model": "m", "local_bsz": "8", "step_time_s": "1"}
    rows = tuple(
        ScoreRow(source="here", cells={**cells, **more})
        for more in ({"num_nodes": "2", "num_replicas": "20"}, {"placement": "1111"})
    )
    steps = pollux.step_rows(pollux.Table(rows=rows))
    assert steps.shape.tolist() == ["10-10", "1111"]
    assert steps.nodes.tolist() == [2.0, 4.0]


def test_more_nodes_than_replicas_are_refused() -> None:
    cells = {"model": "m", "num_nodes": "4", "num_replicas": "3", "local_bsz": "8"}
    row = ScoreRow(source="here", cells={**cells, "step_time_s": "1"})
    with pytest.raises(ScoreError, match="num_nodes = '4' is more than num_replicas = 3"):
        pollux.step_rows(pollux.Table(rows=(row,)))
