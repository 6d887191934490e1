"""The score command: its JSON, its errors, and that nothing leaks from the scored rows."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from csv_files import write

from sbtrain_perf.score import cmdare_checkpoint, cmdare_cluster, cmdare_speed, tdl
from sbtrain_perf.score.__main__ import main
from sbtrain_perf.score.tables import ScoreError, read_table

# Counts of networks that never were: parameters and tensors.
NETWORKS = {f"net{i}": (200_000 * (i + 1) ** 2, 40 + 25 * i) for i in range(8)}
SPEED_1_S = {"K80": 1.0, "P100": 2.5}


def step_s(model: str, gpu: str) -> float:
    parameters, tensors = NETWORKS[model]
    work = 0.01 + 1e-5 * math.sqrt(parameters * tensors) + 1e-8 * parameters
    return work / SPEED_1_S[gpu]


def lay_out(
    folder: Path, models: Sequence[str], *, workers: range, factor: float = 1.0
) -> Path:
    """A folder like the public data, from known laws with 2 % of noise."""
    noise = random.Random(len(models) + workers.start)

    def noisy(value: float) -> float:
        return value * factor * math.exp(noise.gauss(0.0, 0.02))

    write(
        folder,
        "cmdare/models.csv",
        [
            {
                "model": name,
                "n_params": parameters,
                "n_tensors": tensors,
                "model_flops_gf": parameters * 9e-7,
                "ckpt_mb": parameters * 8e-6,
            }
            for name, (parameters, tensors) in NETWORKS.items()
        ],
    )
    write(
        folder,
        "cmdare/speed_single_worker.csv",
        [
            {"gpu": gpu, "model": name, "step_time_mean_s": noisy(step_s(name, gpu))}
            for gpu in SPEED_1_S
            for name in models
        ],
    )
    write(
        folder,
        "cmdare/checkpoint_samples.csv",
        [
            {
                "model": name,
                "ckpt_mb": NETWORKS[name][0] * 8e-6 + 0.02 * NETWORKS[name][1],
                "meta_mb": 0.02 * NETWORKS[name][1],
                "duration_s": noisy(3.0 + 0.2 * NETWORKS[name][0] * 1e-6),
            }
            for name in models
            for _ in range(3)
        ],
    )
    write(
        folder,
        "cmdare/speed_cluster.csv",
        [
            {
                "gpu": gpu,
                "model": name,
                "n_ps": servers,
                "n_workers": count,
                "speed_mean_steps_s": noisy(
                    min(count / step_s(name, gpu), servers * 6.0 / step_s(name, "P100"))
                ),
            }
            for gpu, servers in (("K80", 1), ("P100", 1), ("P100", 2))
            for name in models[:2]
            for count in workers
        ],
    )
    return folder


def leaves(scores: object) -> dict[str, object]:
    return json.loads(json.dumps(scores))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    root = tmp_path_factory.mktemp("data")
    names = list(NETWORKS)
    return (
        lay_out(root / "fit", names[:6], workers=range(1, 5)),
        lay_out(root / "score", names[6:] + names[:1], workers=range(5, 9)),
    )


def test_json_has_the_promised_shape(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fit, held = folders
    arguments = ["cmdare-speed", "--fit", str(fit), "--score", str(held), "--json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["dataset"] == "cmdare-speed"
    groups = {(group["group"], group["model"]): group for group in found["groups"]}
    assert {group for group, _ in groups} == {"K80", "P100"}
    assert {"ours", "linear", "svr-poly", "svr-rbf"} <= {model for _, model in groups}
    ours = groups["P100", "ours"]
    assert ours["n"] == 3
    assert {"mape", "median_ape", "coverage90"} <= set(ours)
    assert ours["mape"] < groups["P100", "linear"]["mape"]


def test_table_shows_ours_beside_the_yardsticks(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    fit, held = folders
    assert main(["cmdare-cluster", "--fit", str(fit), "--score", str(held)]) == 0
    text = capsys.readouterr().out
    for word in ("P100/2", "ours", "sum-of-speeds", "MAPE %"):
        assert word in text


@pytest.mark.parametrize(
    ("scorer", "name", "column"),
    [
        (cmdare_speed, "cmdare/speed_single_worker.csv", "step_time_mean_s"),
        (cmdare_checkpoint, "cmdare/checkpoint_samples.csv", "duration_s"),
        (cmdare_cluster, "cmdare/speed_cluster.csv", "speed_mean_steps_s"),
    ],
)
def test_nothing_leaks_from_the_scored_targets(
    folders: tuple[Path, Path], tmp_path: Path, scorer: object, name: str, column: str
) -> None:
    fit, held = folders
    other = tmp_path / "held"
    for file in ("models", "speed_single_worker", "checkpoint_samples", "speed_cluster"):
        table = read_table(held, f"cmdare/{file}.csv")
        scale = 7.0 if f"cmdare/{file}.csv" == name else 1.0
        rows = [
            {
                key: str(float(cell) * scale) if key == column else cell
                for key, cell in row.cells.items()
            }
            for row in table
        ]
        write(other, f"cmdare/{file}.csv", rows)

    def predicted(folder: Path) -> list[tuple[float, float | None]]:
        found = scorer.points(fit, folder)  # type: ignore[attr-defined]
        models = found.values() if "ours" not in found else [found]
        return [(p.predicted, p.high) for model in models for p in model["ours"]]

    assert predicted(other) == predicted(held)
    changed = scorer.score(fit, other)  # type: ignore[attr-defined]
    assert changed != scorer.score(fit, held)  # type: ignore[attr-defined]


def test_order_of_the_rows_does_not_matter(folders: tuple[Path, Path], tmp_path: Path) -> None:
    fit, held = folders
    lay_out(tmp_path, list(NETWORKS)[:6], workers=range(1, 5))
    table = read_table(fit, "cmdare/speed_cluster.csv")
    rows = [row.cells for row in table][::-1]
    write(tmp_path, "cmdare/speed_cluster.csv", rows)
    ahead = cmdare_cluster.points(fit, held)["ours"]
    back = cmdare_cluster.points(tmp_path, held)["ours"]
    for one, other in zip(ahead, back, strict=True):
        assert one.predicted == pytest.approx(other.predicted, rel=1e-3)


def test_gpu_that_was_never_fitted_is_placed_and_wide(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    fit, _ = folders
    write(
        tmp_path,
        "cmdare/speed_single_worker.csv",
        [{"gpu": "V100", "model": "net3", "step_time_mean_s": step_s("net3", "P100") / 1.3}],
    )
    ((ours,),) = [cmdare_speed.points(fit, tmp_path)["V100"]["ours"]]
    assert ours.ape < 25.0
    assert ours.width is not None
    assert ours.width > 0.4


def test_tdl_without_any_run_to_fit_predicts_cold(tmp_path: Path) -> None:
    fit, held = tmp_path / "fit", tmp_path / "held"
    network = {"model": "resnet32", "n_params": 2_000_000, "n_tensors": 100}
    write(fit, "cmdare/models.csv", [network])
    speeds = [
        {"gpu": "K80", "model": "resnet32", "step_time_mean_s": 0.2},
        {"gpu": "P100", "model": "resnet32", "step_time_mean_s": 0.08},
    ]
    write(fit, "cmdare/speed_single_worker.csv", speeds)
    job = {
        "experiment": "mixed",
        "config": "2k1p",
        "n_ps": 1,
        "n_k80": 2,
        "n_p100": 1,
        "n_v100": 0,
        "avg_steps_s": 2 / 0.2 + 1 / 0.08,
    }
    write(held, "tdl/training_jobs.csv", [job])
    (ours,) = tdl.points(fit, held)["ours"]
    assert ours.ape < 5.0
    assert ours.covered


def test_remote_workers_are_read_from_the_configuration(tmp_path: Path) -> None:
    rows = [
        {"experiment": "r", "config": "2e1c1w", "n_ps": 1, "n_k80": 4, "avg_steps_s": 14.0},
        {"experiment": "r", "config": "2ps4k", "n_ps": 2, "n_k80": 4, "avg_steps_s": 18.0},
    ]
    write(tmp_path, "tdl/training_jobs.csv", rows)
    far, near = (run.run.workers for run in tdl.read_runs(tmp_path))
    assert far == (("K80", 2), ("K80@c", 1), ("K80@w", 1))
    assert near == (("K80", 4),)


def test_errors_name_the_place(
    folders: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit, _ = folders
    missing = ["cmdare-speed", "--fit", str(fit), "--score", str(tmp_path / "none")]
    assert main(missing) == ScoreError.exit_code
    assert "is not a folder" in capsys.readouterr().err
    assert main(["tdl", "--fit", str(fit), "--score", str(tmp_path)]) == ScoreError.exit_code
    assert "has no rows of tdl" in capsys.readouterr().err
    row = {"gpu": "K80", "model": "net1", "step_time_mean_s": "fast"}
    write(tmp_path, "cmdare/speed_single_worker.csv", [row])
    bad = ["cmdare-speed", "--fit", str(fit), "--score", str(tmp_path)]
    assert main(bad) == ScoreError.exit_code
    message = capsys.readouterr().err
    assert "speed_single_worker.csv:2" in message
    assert "'fast'" in message


def test_unknown_network_is_an_error(folders: tuple[Path, Path], tmp_path: Path) -> None:
    fit, _ = folders
    row = {"gpu": "K80", "model": "nobody", "step_time_mean_s": "0.1"}
    write(tmp_path, "cmdare/speed_single_worker.csv", [row])
    with pytest.raises(ScoreError, match="nobody"):
        cmdare_speed.score(fit, tmp_path)


def test_unknown_data_set_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["imagenet", "--fit", ".", "--score", "."])
    assert stopped.value.code == 2
    assert "cmdare-speed" in capsys.readouterr().err
