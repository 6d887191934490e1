"""One worker's speed: which rows are scored, and what a gap in the features costs."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from csv_files import write

from sbtrain_perf.score import cmdare_speed
from sbtrain_perf.score.cmdare import cnn_of, merged_order, read_cnns
from sbtrain_perf.score.tables import ScoreError

MODELS = "cmdare/models.csv"
MEANS = "cmdare/speed_single_worker.csv"
SAMPLES = "cmdare/speed_single_worker_samples.csv"
BASE = "cmdare/speed_base_k80_p100_v100.csv"
NAMES = [f"net{i}" for i in range(6)]


def network(name: str, **cells: object) -> dict[str, object]:
    size = NAMES.index(name) + 1
    usual = {
        "model": name,
        "n_params": 200_000 * size**2,
        "n_tensors": 40 + 20 * size,
        "model_flops_gf": 0.2 * size**2,
    }
    return {**usual, **cells}


def step_s(name: str, gpu: str = "K80") -> float:
    cells = network(name)
    work = 0.01 + 1e-5 * math.sqrt(cells["n_params"] * cells["n_tensors"])
    return work / {"K80": 1.0, "P100": 2.3, "V100": 3.3}[gpu]


def mean(name: str, gpu: str = "K80", factor: float = 1.0) -> dict[str, object]:
    return {"gpu": gpu, "model": name, "step_time_mean_s": factor * step_s(name, gpu)}


@pytest.fixture
def fit(tmp_path: Path) -> Path:
    folder = write(tmp_path / "fit", MODELS, [network(name) for name in NAMES])
    rows = [mean(name, gpu) for name in NAMES[:5] for gpu in ("K80", "P100")]
    return write(folder, MEANS, rows)


def counts(fit: Path, held: Path) -> dict[tuple[str, str], int]:
    return {(s.group, s.model): s.n for s in cmdare_speed.score(fit, held)}


def test_every_scored_row_counts(fit: Path, tmp_path: Path) -> None:
    held = write(tmp_path / "held", MEANS, [mean("net5"), mean("net5", factor=2.0)])
    assert counts(fit, held)["K80", "ours"] == 2
    once, twice = cmdare_speed.points(fit, held)["K80"]["ours"]
    assert (once.predicted, 2.0 * once.measured) == (twice.predicted, twice.measured)
    assert once.ape < 10.0


def test_other_files_are_scored_where_the_means_have_no_row(fit: Path, tmp_path: Path) -> None:
    held = write(tmp_path / "held", MEANS, [mean("net5")])
    sample = {"gpu": "P100", "model": "net5"}
    write(held, SAMPLES, [{**sample, "step_time_s": seconds} for seconds in (0.01, 0.03)])
    base = [
        {"gpu": gpu, "model": name, "step_time_s": step_s(name, gpu)}
        for name in ("net2", "net5")
        for gpu in ("K80", "P100", "V100")
    ]
    write(held, BASE, base)
    found = cmdare_speed.points(fit, held)
    measured = {gpu: [point.measured for point in m["ours"]] for gpu, m in found.items()}
    assert measured == {
        "K80": [step_s("net5"), step_s("net2")],
        "P100": [0.02, step_s("net2", "P100")],
        "V100": [step_s("net2", "V100"), step_s("net5", "V100")],
    }


def test_a_regression_without_its_feature_scores_what_it_can(fit: Path, tmp_path: Path) -> None:
    held = write(tmp_path / "held", MEANS, [mean("net4"), mean("net5")])
    write(fit, MODELS, [network(name) for name in NAMES[:5]])
    write(held, MODELS, [network("net5", model_flops_gf="")])
    found = counts(fit, held)
    assert found["K80", "ours"] == found["K80", "sqrt-terms"] == 2
    assert found["K80", "svr-rbf"] == found["K80", "linear"] == 1


@pytest.mark.parametrize("side", ["fit", "held"])
def test_a_regression_that_nothing_is_known_for_is_left_out(
    fit: Path, tmp_path: Path, side: str
) -> None:
    held = write(tmp_path / "held", MEANS, [mean("net5")])
    without = NAMES[:5] if side == "fit" else NAMES[5:]
    rows = [network(n, **({"model_flops_gf": ""} if n in without else {})) for n in NAMES]
    write(fit, MODELS, rows)
    found = {model: n for (_, model), n in counts(fit, held).items()}
    assert found == {"ours": 1, "ours-no-session": 1, "sqrt-terms": 1}


def test_a_line_that_nothing_needs_may_be_wrong(fit: Path, tmp_path: Path) -> None:
    held = write(tmp_path / "held", MEANS, [mean("net5")])
    before = cmdare_speed.points(fit, held)["K80"]
    spare = [network("net0", model=f"spare{i}") for i in range(2)]
    spare[0] |= {"n_params": "", "n_tensors": "many"}
    write(fit, MODELS, [*(network(name) for name in NAMES), *spare])
    assert cmdare_speed.points(fit, held)["K80"] == before


@pytest.mark.parametrize(
    ("column", "value"),
    [("n_params", "0"), ("n_params", ""), ("n_tensors", "-3"), ("model_flops_gf", "-1")],
)
def test_a_used_line_must_be_right(fit: Path, tmp_path: Path, column: str, value: str) -> None:
    held = write(tmp_path / "held", MEANS, [mean("net5")])
    rows = [network(n, **({column: value} if n == "net5" else {})) for n in NAMES]
    write(fit, MODELS, rows)
    with pytest.raises(ScoreError, match=rf"models.csv:7: .*{column}"):
        cmdare_speed.points(fit, held)


def test_the_fuller_list_gives_the_order(tmp_path: Path) -> None:
    few, all_six = (
        write(tmp_path / side, MODELS, [network(name) for name in names])
        for side, names in (("few", [*NAMES[:2], *NAMES[4:]]), ("all", NAMES))
    )
    for pair in ((few, all_six), (all_six, few)):
        cnns = read_cnns(*pair)
        assert [cnn_of(cnns, name).order for name in NAMES] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("longer", "shorter", "merged"),
    [
        ("abcd", "bd", "abcd"),
        ("abcd", "bxyd", "abxycd"),
        ("abcd", "xcy", "abxcyd"),
        ("abcd", "xyz", "abcdxyz"),
        ("abcd", "xyb", "axybcd"),
    ],
)
def test_lists_are_merged_by_neighbours(longer: str, shorter: str, merged: str) -> None:
    assert "".join(merged_order(longer, shorter)) == merged
