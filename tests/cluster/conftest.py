"""A real private Slurm for the tests of this folder: eight nodes, started once a session.

def test_something(slurm_environment):
    run_command(["sbatch", ...], env={**os.environ, **slurm_environment}, ...)

def test_a_crash(slurm_environment, slurm_folder):
    crash_node(slurm_folder, "c2")   # slurmd, its slurmstepds and tasks, by SIGKILL
    ...
    start_node(slurm_folder, "c2")   # returns once slurmctld has heard from it
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sbtrain.cluster import PrivateCluster, down, up
from sbtrain.cluster.errors import SlurmNotInstalledError
from slurm_runs import SlurmRun


@contextmanager
def running_cluster() -> Iterator[PrivateCluster]:
    place = Path(tempfile.mkdtemp(prefix="sbt-test-", dir="/tmp"))
    try:
        yield up(place / "cluster")
    except SlurmNotInstalledError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    finally:
        down(place / "cluster")
        shutil.rmtree(place, ignore_errors=True)


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[PrivateCluster]:
    """The session's cluster; skips only where Slurm is not installed."""
    with running_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_folder(slurm_cluster: PrivateCluster) -> Path:
    """The cluster's folder, for crash_node and start_node."""
    return slurm_cluster.folder


@pytest.fixture(scope="session")
def slurm_environment(slurm_cluster: PrivateCluster) -> dict[str, str]:
    """What to merge into the environment of a child that talks to the session's cluster."""
    return dict(slurm_cluster.environment)


@pytest.fixture
def runs() -> Iterator[list[SlurmRun]]:
    """Whatever a test appends is cancelled after it."""
    made: list[SlurmRun] = []
    yield made
    for run in made:
        run.cancel()


@pytest.fixture
def private_slurm() -> Iterator[PrivateCluster]:
    """A cluster of one's own for one test, for what would disturb the others."""
    with running_cluster() as cluster:
        yield cluster
