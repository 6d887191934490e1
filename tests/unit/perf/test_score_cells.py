"""Cells that cannot be: an error with file, line, column and value, in either folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from csv_files import write

from sbtrain_perf.score.__main__ import DATASETS, main
from sbtrain_perf.score.cmdare_lifetime import FILE as LIFETIMES
from sbtrain_perf.score.cmdare_lifetime import points as lifetimes
from sbtrain_perf.score.tables import ScoreError, ScoreRow, read_table

NETS = {"resnet32": (1_857_722, 104), "net1": (700_000, 50), "net2": (5_000_000, 150)}
NETWORKS = [
    {"model": name, "n_params": parameters, "n_tensors": tensors, "model_flops_gf": ""}
    for name, (parameters, tensors) in NETS.items()
]
SPEED = "cmdare/speed_single_worker.csv"
FILES = {
    "cmdare-speed": SPEED,
    "cmdare-checkpoint": "cmdare/checkpoint_samples.csv",
    "cmdare-cluster": "cmdare/speed_cluster.csv",
    "cmdare-lifetime": LIFETIMES,
    "tdl": "tdl/training_jobs.csv",
    "pollux": "pollux/step_times.csv",
    "gavel": "gavel/throughputs.csv",
}
ROWS: dict[str, list[dict[str, object]]] = {
    SPEED: [
        {"gpu": "K80", "model": name, "step_time_mean_s": parameters * 1e-7}
        for name, (parameters, _) in NETS.items()
    ],
    "cmdare/checkpoint_samples.csv": [
        {
            "model": name,
            "ckpt_mb": parameters * 9e-6,
            "meta_mb": 0.02 * tensors,
            "duration_s": 3.0 + parameters * 1e-7,
        }
        for name, (parameters, tensors) in NETS.items()
    ],
    "cmdare/speed_cluster.csv": [
        {
            "gpu": "K80",
            "model": "net1",
            "n_ps": 1,
            "n_workers": workers,
            "speed_mean_steps_s": workers / 0.07,
        }
        for workers in (1, 2, 3)
    ],
    LIFETIMES: [
        {"gpu": "K80", "region": "west", "hour": hour, "cdf_lifetime": share, "n_servers": 40}
        for hour, share in ((1, 0.1), (2, 0.2), (24, 0.5))
    ],
    "tdl/training_jobs.csv": [
        {
            "experiment": "near",
            "config": "",
            "n_ps": 1,
            "n_k80": workers,
            "n_p100": 0,
            "n_v100": "",
            "duration_s": 6000.0,
            "avg_steps_s": workers * 5.0,
        }
        for workers in (1, 2, 4)
    ],
    "pollux/step_times.csv": [
        {
            "model": "net",
            "placement": shape,
            "num_nodes": len(shape),
            "num_replicas": sum(map(int, shape)),
            "local_bsz": 8,
            "step_time_s": 0.1 + 0.02 * len(shape),
            "sync_time_s": 0.01,
        }
        for shape in ("1", "2", "11")
    ],
    "gavel/throughputs.csv": [
        {
            "source_file": "one",
            "gpu": "K80",
            "consolidated": "True",
            "model": "net",
            "batch_size_per_gpu": 16,
            "num_gpus": gpus,
            "steps_per_s": 4.5 * gpus,
        }
        for gpus in (2, 1, 4)
    ],
}
NOT_POSITIVE = ("0", "-1", "1e300", "1e-300", "nan", "fast")
NOT_COUNTS = (*NOT_POSITIVE, "2.5", "")
BAD_CELLS = [
    *(("cmdare-speed", "step_time_mean_s", value) for value in (*NOT_POSITIVE, "")),
    *(("cmdare-checkpoint", "duration_s", value) for value in (*NOT_POSITIVE, "")),
    *(("cmdare-checkpoint", "ckpt_mb", value) for value in ("0", "0.5", "1e300")),
    *(("cmdare-checkpoint", "meta_mb", value) for value in ("0", "-2", "")),
    *(("cmdare-cluster", "speed_mean_steps_s", value) for value in (*NOT_POSITIVE, "")),
    *(("cmdare-cluster", "n_ps", value) for value in NOT_COUNTS),
    *(("cmdare-cluster", "n_workers", value) for value in NOT_COUNTS),
    *(("cmdare-cluster", "gpu", value) for value in ("", "  ")),
    *(("cmdare-lifetime", "hour", value) for value in ("0", "-1", "-30", "1.5", "1e300", "")),
    *(("cmdare-lifetime", "cdf_lifetime", value) for value in ("1.5", "-0.5", "nan", "")),
    *(("cmdare-lifetime", "n_servers", value) for value in ("0", "-3", "1e300", "2.5")),
    *(("tdl", "avg_steps_s", value) for value in (*NOT_POSITIVE, "")),
    *(("tdl", "duration_s", value) for value in NOT_POSITIVE),
    *(("tdl", "n_ps", value) for value in NOT_COUNTS),
    *(("tdl", "n_k80", value) for value in ("-1", "1e300", "1e-300", "2.5")),
    *(("tdl", "n_p100", value) for value in ("-1", "nan")),
    *(("pollux", "step_time_s", value) for value in (*NOT_POSITIVE, "")),
    *(("pollux", "sync_time_s", value) for value in ("-1", "1e300")),
    *(("pollux", "local_bsz", value) for value in (*NOT_POSITIVE, "")),
    *(("pollux", "placement", value) for value in ("0", "104", "1x", "1.0", "4-4", "x")),
    *(("pollux", "num_nodes", value) for value in ("8", "0", "-1", "abc")),
    *(("pollux", "num_replicas", value) for value in ("8", "0", "2.5")),
    *(("gavel", "steps_per_s", value) for value in ("-1", "1e300", "1e-300", "fast")),
    *(("gavel", "num_gpus", value) for value in NOT_COUNTS),
    *(("gavel", "batch_size_per_gpu", value) for value in NOT_POSITIVE),
]


def lay_out(folder: Path, changed: Mapping[str, list[dict[str, object]]]) -> Path:
    write(folder, "cmdare/models.csv", NETWORKS)
    for name, rows in {**ROWS, **changed}.items():
        write(folder, name, rows)
    return folder


def run(dataset: str, fit: Path, held: Path) -> int:
    return main([dataset, "--fit", str(fit), "--score", str(held), "--json"])


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return lay_out(tmp_path / "good", {})


@pytest.mark.parametrize("dataset", DATASETS)
def test_what_is_right_is_scored(good: Path, dataset: str) -> None:
    assert run(dataset, good, good) == 0


@pytest.mark.parametrize("side", ["fit", "held"])
@pytest.mark.parametrize(("dataset", "column", "value"), BAD_CELLS)
def test_what_cannot_be_is_refused_with_its_place(
    good: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    dataset: str,
    column: str,
    value: str,
    side: str,
) -> None:
    name = FILES[dataset]
    rows = [{**row, column: value} if i == 1 else row for i, row in enumerate(ROWS[name])]
    bad = lay_out(tmp_path / side, {name: rows})
    fit, held = (bad, good) if side == "fit" else (good, bad)
    assert run(dataset, fit, held) == ScoreError.exit_code
    error = capsys.readouterr().err
    assert f"{bad / name}:3: " in error
    assert column in error
    assert value.strip() in error
    assert "\nhint: " in error


def test_a_fitted_step_is_longer_than_its_synchronisation(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = FILES["pollux"]
    longer = lay_out(tmp_path / "longer", {name: [{**r, "sync_time_s": 9} for r in ROWS[name]]})
    assert run("pollux", longer, good) == ScoreError.exit_code
    assert f"{longer / name}:2: sync_time_s = '9' is not less than" in capsys.readouterr().err
    assert run("pollux", good, longer) == 0  # no prediction reads it


@pytest.mark.parametrize("dataset", sorted(set(DATASETS) - {"cmdare-lifetime"}))
def test_a_fit_folder_without_rows_is_named(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], dataset: str
) -> None:
    (tmp_path / "none").mkdir()
    held = write(tmp_path / "held", FILES[dataset], ROWS[FILES[dataset]])
    assert run(dataset, tmp_path / "none", held) == ScoreError.exit_code
    assert "--fit" in capsys.readouterr().err
    assert run(dataset, good, tmp_path / "none") == ScoreError.exit_code
    assert f"--score: {tmp_path / 'none'} has no rows" in capsys.readouterr().err


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_byte_order_mark_changes_nothing(
    good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], dataset: str
) -> None:
    marked = lay_out(tmp_path / "marked", {})
    for name, rows in ROWS.items():
        write(marked, name, rows, encoding="utf-8-sig")
    write(marked, "cmdare/models.csv", NETWORKS, encoding="utf-8-sig")
    assert run(dataset, good, good) == 0
    plain = capsys.readouterr().out
    assert run(dataset, marked, marked) == 0
    assert capsys.readouterr().out == plain


def test_hours_are_counted_from_one(good: Path) -> None:
    first, second, last = lifetimes(good, good)["kaplan-meier of its region"].values()
    found = [first.predicted, second.predicted, last.predicted]
    assert found == pytest.approx([0.9, 0.8, 0.5])


def test_a_line_is_named_past_empty_ones(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('x,y\n\n1,"two\nlines"\n-5,\n')
    first, second = read_table(tmp_path, "a.csv")
    assert first.positive("x") == 1.0
    with pytest.raises(ScoreError, match=re.escape("a.csv:5: x = '-5' is not from 1e-06")):
        second.positive("x")


def test_cells_as_values() -> None:
    row = ScoreRow(
        source="here", cells={"a": " 3.0 ", "b": "", "c": "1.0000000001", "d": "TRUE"}
    )
    assert (row.whole("a"), row.positive("a"), row.name("a")) == (3, 3.0, "3.0")
    assert (row.optional_whole("b"), row.optional_positive("none")) == (None, None)
    assert (row.share("c"), row.flag("d")) == (1.0, True)
    for column, what in (("b", "column 'b' is empty"), ("none", "no column 'none'")):
        with pytest.raises(ScoreError, match=what):
            row.whole(column)
