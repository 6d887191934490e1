"""What the tests of the private cluster share: a record, and ways to look at a running one."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sbtrain.cluster import PrivateCluster
from sbtrain.cluster.config import node_names
from sbtrain.cluster.daemons import Daemons
from sbtrain.cluster.folder import ClusterFolder, ClusterRecord, Ports
from sbtrain.cluster.processes import Identity, is_running, relatives
from sbtrain_jobs.process import run_command

NODES = node_names(2)
RECORD = ClusterRecord(
    version=1,
    cluster_id="0" * 32,
    created="2026-01-01T00:00:00+00:00",
    slurm_version="22.05.8",
    host="laptop",
    host_address="127.0.0.1",
    user="ada",
    root="/home/ada/c",
    conf="/home/ada/c/etc/slurm.conf",
    nodes_per_kind=2,
    accounting=False,
    nodes=NODES,
    ports=Ports(
        slurmctld=11000, slurmdbd=11001, nodes={n: 11002 + i for i, n in enumerate(NODES)}
    ),
)


def slurm(cluster: PrivateCluster, *argv: str, timeout_s: float = 120) -> str:
    environment = {**os.environ, **cluster.environment}
    return run_command(argv, timeout_s=timeout_s, env=environment).stdout.strip()


def until(what: str, holds: Callable[[], bool], *, seconds: float) -> float:
    """seconds: on a quiet machine; a busy one gets four times as long."""
    begin = time.monotonic()
    while not holds():
        if time.monotonic() - begin > 4 * seconds:
            pytest.fail(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)
    return time.monotonic() - begin


def assert_every_node_works(cluster: PrivateCluster) -> None:
    said = slurm(cluster, "srun", "-p", "spot", "-N8", "printenv", "SLURMD_NODENAME")
    assert sorted(said.split()) == ["c1", "c2", "c3", "c4", "g1", "g2", "g3", "g4"]


def daemons_of(cluster: PrivateCluster) -> dict[str, Identity]:
    return Daemons.of(ClusterFolder.at(cluster.folder)).running()


def kin_of(record: ClusterRecord, folder: Path) -> list[str]:
    found = relatives(cluster_id=record.cluster_id, conf=record.conf, log=folder / "log")
    return [f"{one.program} {one.identity.pid}" for one in found]


def kill(identity: Identity) -> None:
    os.kill(identity.pid, signal.SIGKILL)
    until("killed", lambda: not is_running(identity), seconds=5)
