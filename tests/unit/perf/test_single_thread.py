"""Planning starts no BLAS threads, and leaves the environment that jobs inherit alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PERF = Path(__file__).resolve().parents[3] / "perf"
PROGRAM = """
import os, threading
import sbtrain_perf.planner
print(os.environ.get("OPENBLAS_NUM_THREADS"), len(os.listdir("/proc/self/task")))
"""


@pytest.mark.parametrize(("given", "seen"), [(None, "None 1"), ("1", "1 1")])
def test_one_thread_and_the_environment_as_it_was(given: str | None, seen: str) -> None:
    environ = {**os.environ, "PYTHONPATH": str(PERF)}
    environ.pop("OPENBLAS_NUM_THREADS", None)
    if given:
        environ["OPENBLAS_NUM_THREADS"] = given
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == seen
