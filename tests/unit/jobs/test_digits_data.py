"""The digits example's data, and the head of its script as Slurm reads it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sbtrain_jobs.process import run_command

EXAMPLES = Path(__file__).parents[3] / "jobs" / "examples"


def test_the_data_set_is_whole_split_by_class_and_the_same_every_time(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    datasets = pytest.importorskip("sklearn.datasets")
    np = pytest.importorskip("numpy")
    for name in ("one.h5", "two.h5"):
        argv = [sys.executable, str(EXAMPLES / "digits_data.py"), str(tmp_path / name)]
        assert "bytes" in run_command(argv, timeout_s=120).stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.h5", "two.h5"]
    with h5py.File(tmp_path / "one.h5") as one, h5py.File(tmp_path / "two.h5") as two:
        parts = {name: one[name][:] for name in ("x_train", "y_train", "x_test", "y_test")}
        for name, values in parts.items():
            assert np.array_equal(values, two[name][:])
    assert parts["x_train"].shape == (1437, 8, 8, 1)
    assert parts["x_test"].shape == (360, 8, 8, 1)
    assert parts["x_train"].dtype == np.float32
    images = np.concatenate([parts["x_train"], parts["x_test"]])
    assert (images.min(), images.max()) == (0.0, 1.0)
    counts = np.bincount(parts["y_test"])
    assert counts.min() >= 34
    assert counts.max() <= 38
    original = datasets.load_digits().images / 16
    assert np.isclose(images.sum(), original.sum())


def test_the_script_is_short_and_its_directives_are_slurms() -> None:
    lines = (EXAMPLES / "train_digits.py").read_text().splitlines()
    assert lines[0] == "#!/usr/bin/env python3"
    assert len(lines) < 150
    head = lines[: next(n for n, line in enumerate(lines) if line and line[0] != "#")]
    directives = [line for line in head if "--" in line]
    assert len(directives) == 4
    assert all(line.startswith(("#SBATCH --", "#SBTRAIN --train-")) for line in directives)


def test_asking_for_help_writes_no_file_of_that_name(tmp_path: Path) -> None:
    said = run_command(
        [sys.executable, str(EXAMPLES / "digits_data.py"), "--help"],
        cwd=tmp_path,
        timeout_s=60,
    )
    assert said.stdout.startswith("usage: digits_data.py")
    assert list(tmp_path.iterdir()) == []
