"""The private cluster against the real daemons: what down ends, and nodes that crash."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from clusters import daemons_of, kin_of, slurm, until
from sbtrain.cluster import PrivateCluster, crash_node, down, start_node, up
from sbtrain.cluster.processes import identify, is_running

pytestmark = pytest.mark.slurm


def sleepers(cluster: PrivateCluster) -> int:
    return len([one for one in kin_of(cluster.record, cluster.folder) if "sleep" in one])


def job_state(cluster: PrivateCluster, job: str) -> str:
    return slurm(cluster, "squeue", "-h", "-j", job, "-o", "%T")


# ---- down


def test_down_ends_jobs_with_what_they_left_behind(private_slurm: PrivateCluster) -> None:
    script = "setsid sleep 301 & srun sleep 302"
    slurm(private_slurm, "sbatch", "-N3", "-o", "/dev/null", "--wrap", script)
    until(
        "the job's processes run",
        lambda: sleepers(private_slurm) == 4,
        seconds=15,
    )
    down(private_slurm.folder)
    assert kin_of(private_slurm.record, private_slurm.folder) == []
    again = up(private_slurm.folder)
    until(
        "the job runs again",
        lambda: slurm(again, "squeue", "-h", "-o", "%T") == "RUNNING",
        seconds=30,
    )


def test_down_leaves_a_shell_that_uses_the_cluster_alone(private_slurm: PrivateCluster) -> None:
    environment = {**os.environ, **private_slurm.environment}
    shell = subprocess.Popen(["sleep", "303"], env=environment)
    try:
        down(private_slurm.folder)
        assert shell.poll() is None
    finally:
        shell.kill()
        shell.wait()


def test_down_finds_daemons_whose_folder_was_removed(private_slurm: PrivateCluster) -> None:
    before = daemons_of(private_slurm)
    shutil.rmtree(private_slurm.folder)
    down(private_slurm.folder)
    assert not any(is_running(one) for one in before.values())


# ---- nodes


def test_a_crashed_node_loses_its_processes_and_comes_back(
    private_slurm: PrivateCluster,
) -> None:
    folder = private_slurm.folder
    wants = ("-w", "c3,c4", "-N2", "-o", "/dev/null", "--wrap", "srun sleep 304")
    job = slurm(private_slurm, "sbatch", "--parsable", *wants)
    until("the step runs on both nodes", lambda: sleepers(private_slurm) == 2, seconds=15)
    killed = crash_node(folder, "c4")
    assert len(killed) == 3  # slurmd, slurmstepd, sleep
    assert all(identify(pid) is None for pid in killed)
    assert sleepers(private_slurm) == 1
    running = daemons_of(private_slurm)
    assert "slurmd.c4" not in running
    assert len(running) == 9
    assert start_node(folder, "c4").answers
    said = slurm(private_slurm, "srun", "-w", "c4", "printenv", "SLURMD_NODENAME")
    assert said == "c4"
    assert job_state(private_slurm, job)


@pytest.mark.slow
def test_slurmctld_notices_a_crashed_node(private_slurm: PrivateCluster) -> None:
    wants = ("-w", "c2", "-o", "/dev/null", "--wrap", "sleep 305")
    job = slurm(private_slurm, "sbatch", "--parsable", *wants)
    until("it runs", lambda: job_state(private_slurm, job) == "RUNNING", seconds=15)
    crash_node(private_slurm.folder, "c2")
    until(
        "it left the dead node",
        lambda: job_state(private_slurm, job) == "PENDING",
        seconds=60,
    )
    assert start_node(private_slurm.folder, "c2").answers
    until("it runs again", lambda: job_state(private_slurm, job) == "RUNNING", seconds=60)


def test_requeued_jobs_restart_in_seconds(slurm_cluster: PrivateCluster) -> None:
    wants = ("-o", "/dev/null", "--wrap", "sleep 306")
    job = slurm(slurm_cluster, "sbatch", "--parsable", *wants)
    until("it runs", lambda: job_state(slurm_cluster, job) == "RUNNING", seconds=15)
    slurm(slurm_cluster, "scontrol", "requeue", job)
    until("it waits", lambda: job_state(slurm_cluster, job) == "PENDING", seconds=15)
    until("it runs again", lambda: job_state(slurm_cluster, job) == "RUNNING", seconds=15)
    slurm(slurm_cluster, "scancel", job)
