"""The private cluster against the real daemons: starting, healing, crashing, ending."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sbtrain.cluster import crash_node, start_node
from sbtrain_jobs.process import run_command

pytestmark = pytest.mark.slurm


def test_a_job_runs_on_two_nodes(slurm_environment: dict[str, str]) -> None:
    said = run_command(
        ["srun", "-N2", "--ntasks-per-node=1", "printenv", "SLURMD_NODENAME"],
        timeout_s=60,
        env={**os.environ, **slurm_environment},
    ).stdout
    assert len(set(said.split())) == 2


def test_a_crashed_node_comes_back(
    slurm_environment: dict[str, str], slurm_folder: Path
) -> None:
    killed = crash_node(slurm_folder, "c4")
    assert killed
    assert start_node(slurm_folder, "c4").answers
    said = run_command(
        ["srun", "-w", "c4", "printenv", "SLURMD_NODENAME"],
        timeout_s=60,
        env={**os.environ, **slurm_environment},
    ).stdout
    assert said.strip() == "c4"
