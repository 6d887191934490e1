"""The worlds that ranks find on a real Slurm: MPI's, what Slurm's variables say of one, and
those behind a proxy."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from sbtrain_perf.request import Role
from slurm_runs import SlurmRun, slurm_run

pytestmark = pytest.mark.slurm

WORLD = """
import sys
from mpi4py import MPI
world = MPI.COMM_WORLD
print(f"rank {world.rank} of {world.size}: {world.allreduce(world.rank)}", flush=True)
if world.rank == 1 and "abort" in sys.argv:
    world.Abort(3)
if world.rank == 1 and "fail" in sys.argv:
    sys.exit(37)
if len(sys.argv) > 1:
    world.recv(source=1)
"""
SAVES = """
import signal, sys, time
from mpi4py import MPI
def save(*_):
    print("saved", flush=True)
    sys.exit(85)
signal.signal(signal.SIGUSR1, save)
print(f"rank {MPI.COMM_WORLD.rank} of {MPI.COMM_WORLD.size}", flush=True)
time.sleep(600)
"""
SEES = """
import os, subprocess
inner = subprocess.run(["srun", "--overlap", "echo", "ran"], capture_output=True, text=True)
names = ("CUDA_VISIBLE_DEVICES", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS")
print(*(os.environ.get(name) for name in names), inner.stdout.count("ran"), inner.returncode)
"""
REDUCE = """
import tensorflow as tf
strategy = tf.distribute.MultiWorkerMirroredStrategy()
def total():
    context = tf.distribute.get_replica_context()
    return context.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0))
print("the sum is", float(strategy.run(tf.function(total))), flush=True)
"""


def of_workers(per_node: int) -> dict[str, object]:
    roles = tuple(Role(name="worker", index=i, node=i // per_node) for i in range(2 * per_node))
    return {"workers": len(roles), "roles": roles}


@pytest.fixture
def mpi() -> None:
    pytest.importorskip("mpi4py")


@pytest.mark.mpi
@pytest.mark.usefixtures("mpi")
@pytest.mark.parametrize("per_node", [1, 2])
def test_mpi_ranks_are_one_world(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun], per_node: int
) -> None:
    run = slurm_run(
        tmp_path,
        slurm_environment,
        WORLD,
        partition="standard",
        framework="mpi",
        **of_workers(per_node),
    )
    runs.append(run)
    run.submit()
    run.wait_for_state("COMPLETED", "FAILED")
    assert run.state == "COMPLETED", run.output
    size = 2 * per_node
    for rank in range(size):
        assert run.log(f"worker-{rank}") == f"rank {rank} of {size}: {sum(range(size))}\n"
    assert "cpu binding" not in run.output


@pytest.mark.mpi
@pytest.mark.usefixtures("mpi")
@pytest.mark.parametrize(("way", "code"), [("fail", 37), ("abort", 3)])
def test_a_rank_of_mpi_that_fails_gives_the_job_its_status(
    tmp_path: Path,
    slurm_environment: dict[str, str],
    runs: list[SlurmRun],
    way: str,
    code: int,
) -> None:
    run = slurm_run(
        tmp_path,
        slurm_environment,
        WORLD,
        partition="standard",
        framework="mpi",
        script_args=(way,),
    )
    runs.append(run)
    run.submit(nodelist="c2,c3")
    run.wait_for_state("COMPLETED", "FAILED", within_s=40)
    assert run.shown("ExitCode") == f"{code}:0", run.output
    assert f"worker 1 on node c3 ended with exit status {code}" in run.output


@pytest.mark.mpi
@pytest.mark.usefixtures("mpi")
def test_a_world_of_mpi_is_preempted_and_comes_back(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    run = slurm_run(tmp_path, slurm_environment, SAVES, partition="spot", framework="mpi")
    runs.append(run)
    run.submit("--signal=B:USR1@60", "--time=10", nodelist="g1,g2")
    both = ("worker-0", "worker-1")
    run.wait_for(lambda: all("of 2" in run.log(name) for name in both), "the world")
    urgent = ["--partition=urgent", "--exclusive", "-N2", "--nodelist=g1,g2", "--time=1"]
    run.slurm(["sbatch", *urgent, "--wrap=sleep 2"])
    run.wait_for(lambda: run.shown("Restarts") == "1", "a requeue")
    assert all("saved" in run.log(name) for name in both)
    assert run.attempts[0].cause == "preempted"


@pytest.mark.parametrize(
    "asked",
    [
        ("--gpus-per-task=1", "--ntasks-per-node=2"),
        ("--ntasks-per-gpu=1", "--gres=gpu:2"),
        ("--gres=gpu:2", "--gpu-bind=single:1", "--cpus-per-task=2"),
        ("--gres=gpu:2", "--distribution=cyclic", "--hint=nomultithread"),
    ],
)
def test_what_a_job_asks_for_a_task_its_ranks_have(
    tmp_path: Path,
    slurm_environment: dict[str, str],
    runs: list[SlurmRun],
    asked: Sequence[str],
) -> None:
    run = slurm_run(tmp_path, slurm_environment, SEES, partition="spot", **of_workers(2))
    runs.append(run)
    run.submit("--time=5", behind=asked, not_added="--ntasks-per-node")
    run.wait_for_state("COMPLETED", "FAILED")
    assert run.state == "COMPLETED", run.output
    for rank in range(4):
        expected = f"{rank % 2} {rank} {rank % 2} 4 4 0\n"
        assert run.log(f"worker-{rank}") == expected, run.output


@pytest.mark.tensorflow
@pytest.mark.skipif(
    importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
)
def test_workers_of_tensorflow_meet_past_a_proxy(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    """gRPC would send their words to one another to a port where nobody listens."""
    proxy = {"http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1"}
    run = slurm_run(
        tmp_path,
        {**slurm_environment, **proxy, "VIRTUAL_ENV": sys.prefix},
        REDUCE,
        partition="standard",
        framework="tensorflow",
    )
    runs.append(run)
    run.submit()
    run.wait_for_state("COMPLETED", "FAILED", within_s=100)
    assert run.state == "COMPLETED", run.output
    for name in ("worker-0", "worker-1"):
        assert "the sum is 2.0" in run.log(name)
