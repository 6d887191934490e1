"""Environments on one home whose h5py bring HDF5 of different age read each other's logs."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import h5py
import pytest

from older_pythons import ROOT, WINGS
from sbtrain_perf.errors import TimingLogError
from sbtrain_perf.timing_log import read_timing_log

# HDF5 1.12, 1.14 and 2.0
OTHERS = (("h5py==3.10.0", "numpy<2"), ("h5py==3.14.0", "numpy"), ("h5py==3.16.0", "numpy"))

WRITES = """
import os, sys
from pathlib import Path
from plans import example_plan
from sbtrain_perf.timing_log import TimingLog
for name in ("closed", "left"):
    log = TimingLog.create(Path(sys.argv[1]) / f"{name}.h5", plan=example_plan(), attempt=1)
    log.phase("start", 9.0, at_s=0.0, parameters=77850)
    log.steps(0, 1, [0.1] * 5, 32)
    log.flush()
    if name == "closed":
        log.close()
os._exit(0)
"""
READS = """
import sys
from sbtrain_perf.timing_log import read_timing_log
for path in sys.argv[1:]:
    timings = read_timing_log(path)
    print(timings.described("parameters"), [len(rank.step) for rank in timings.ranks])
"""


def test_a_log_that_a_newer_hdf5_wrote_in_its_own_format_is_named(tmp_path: Path) -> None:
    """A file that h5py 3.16 made with libver="latest", as sbtrain once did."""
    path = tmp_path / "timings.h5"
    path.write_bytes(
        gzip.decompress((ROOT / "tests/golden/timings-hdf5-2.0.h5.gz").read_bytes())
    )
    if h5py.version.hdf5_version_tuple >= (2,):
        assert read_timing_log(path).described("parameters") == 77_850
        return
    with pytest.raises(TimingLogError) as raised:
        read_timing_log(path)
    said = f"{path} was written by HDF5 2.0 or newer; this HDF5, {h5py.version.hdf5_version} of"
    assert raised.value.message.startswith(said)
    assert f"{sys.executable} -m pip install 'h5py>=3.16'" in raised.value.hint


def run(python: Path, code: str, *words: object) -> str:
    path = os.pathsep.join(str(ROOT / part) for part in (*WINGS, "tests"))
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": path}
    argv = [str(python), "-c", code, *map(str, words)]
    return subprocess.run(argv, env=environ, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_each_environment_reads_the_logs_of_each(tmp_path: Path) -> None:
    pythons = {}
    for number, packages in enumerate(OTHERS):
        folder = tmp_path / f"venv{number}"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        pythons[packages[0]] = python = folder / "bin/python"
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages]
        subprocess.run(pip, check=True)
    logs = []
    for name, python in pythons.items():
        (tmp_path / name).mkdir()
        run(python, WRITES, tmp_path / name)
        logs += [tmp_path / name / "closed.h5", tmp_path / name / "left.h5"]
    assert len(
        {
            run(python, "import h5py; print(h5py.version.hdf5_version)")
            for python in pythons.values()
        }
    ) == len(OTHERS)
    for python in pythons.values():
        assert run(python, READS, *logs).splitlines() == ["77850.0 [5]"] * len(logs)
