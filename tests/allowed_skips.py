"""The tests that may be skipped where the suite runs as root, each with its reason.

As root everything that a test needs can be installed, so a skip is a failure: it would hide
a proof. Whoever adds a line here says why no machine can run the test, or what the machine
lacks that cannot be installed.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedSkip:
    """tests: a pattern of node ids. said: a regular expression that the skip's own words
    match. why: for whoever reads this list."""

    tests: str
    said: str
    why: str


WITHOUT_SHARED_DATA = (
    AllowedSkip(
        tests="tests/unit/perf/*",
        said="public measurements do not lie beside the checkout",
        why="they are not ours to put into the repository",
    ),
)
OTHER_PYTHONS = AllowedSkip(
    tests="tests/unit/test_older_pythons.py::*",
    said=r"no Python [23]\.\d+ on PATH and none of pyenv",
    why="a distribution has one Python, and sbtrain itself needs a newer one",
)
PYSLURM = AllowedSkip(
    tests="tests/cluster/test_slurm_client.py::*",
    said="pyslurm is not installed",
    why="it can be built for Slurm 26.05 alone: `make test-slurm-26.05` does",
)
WITHOUT_TENSORFLOW = AllowedSkip(
    tests="tests/cluster/*",
    said="TensorFlow is not installed",
    why="it has no wheel for Python 3.14",
)
ALLOWED: tuple[AllowedSkip, ...] = (
    OTHER_PYTHONS,
    PYSLURM,
    *((WITHOUT_TENSORFLOW,) if sys.version_info >= (3, 14) else ()),
    *(() if BESIDE.is_dir() else WITHOUT_SHARED_DATA),
)


def allows(node_id: str, reason: str) -> bool:
    return any(
        fnmatchcase(node_id, one.tests) and re.search(one.said, reason) for one in ALLOWED
    )
