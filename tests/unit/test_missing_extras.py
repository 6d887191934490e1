"""What the base install lacks is named together with the extra that brings it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WINGS = ["slurm_plugin", "jobs", "perf", "io_staging"]
BLOCKER = """
import sys

BLOCKED = {"h5py", "sklearn", "scipy", "xxhash", "mpi4py", "tensorflow", "keras", "torch"}


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Blocker())
"""


@pytest.mark.parametrize(
    ("words", "package", "extra"),
    [
        (["sbtrain_perf.score", "pollux", "--fit", ".", "--score", "."], "scipy", "perf"),
        (["sbtrain_perf.regret", "--data", "."], "scipy", "perf"),
        (
            [
                "sbtrain_staging",
                "run",
                "--to",
                "{}/%n",
                "--key",
                "k",
                "--report",
                "r",
                "f",
            ],
            "xxhash",
            "staging",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
def test_the_extra_is_named(tmp_path: Path, words: list[str], package: str, extra: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    (tmp_path / "f").write_text("data")
    path = ":".join([str(tmp_path), *(str(ROOT / wing) for wing in WINGS)])
    result = subprocess.run(
        [sys.executable, "-m", *(word.format(tmp_path) for word in words)],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode not in (0, 1), result.stderr
    assert f"{package!r}" in result.stderr
    assert f"pip install 'sbtrain[{extra}]'" in result.stderr
    assert "Traceback" not in result.stderr
