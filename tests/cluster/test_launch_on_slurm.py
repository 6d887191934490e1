"""Starting trainers on a real Slurm, and what the job's end tells."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from counting_trainer import TRAIN
from sbtrain_perf.request import DataSet, Role
from sbtrain_perf.timing_log import read_timing_log
from sbtrain_staging.errors import SourceError
from slurm_runs import SlurmRun, slurm_run

pytestmark = pytest.mark.slurm


def test_two_nodes_train_to_the_end(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    run = slurm_run(tmp_path, slurm_environment, TRAIN, partition="standard", steps=20)
    runs.append(run)
    run.submit()
    run.wait_for_state("COMPLETED", "FAILED")
    assert run.state == "COMPLETED", run.output
    assert run.shown("ExitCode") == "0:0"
    result = json.loads((Path(run.plan.run_dir) / "final" / "result.json").read_text())
    assert result == {"weight": 20.0}
    (attempt,) = run.attempts
    assert (attempt.cause, attempt.exit_code) == ("completed", 0)
    assert "rank 0 attempt 0 starts after step 0" in run.output
    assert "training is complete" in run.output


def test_the_exit_code_of_the_failing_role_is_the_jobs(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    script = (
        "import os, sys, time\n"
        "if os.environ['SBTRAIN_RANK'] == '1':\n"
        "    sys.exit('no such file: digits.h5')\n"
        "time.sleep(600)\n"
    ).replace("sys.exit('", "print('no such file: digits.h5', file=sys.stderr); sys.exit(37) #")
    run = slurm_run(tmp_path, slurm_environment, script, partition="standard")
    runs.append(run)
    run.submit(nodelist="c2,c3")
    run.wait_for_state("COMPLETED", "FAILED", within_s=40)
    assert run.shown("ExitCode") == "37:0"
    assert "worker 1 on node c3 ended with exit status 37" in run.output
    assert "    no such file: digits.h5" in run.output
    assert run.shown("Restarts") == "0"
    assert run.attempts[0].cause == "failed"


def test_a_trainer_ended_by_a_signal_gives_the_exit_code_of_a_shell(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    script = (
        "import os, signal, time\n"
        "if os.environ['SBTRAIN_RANK'] == '1':\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "time.sleep(600)\n"
    )
    run = slurm_run(tmp_path, slurm_environment, script, partition="standard")
    runs.append(run)
    run.submit()
    run.wait_for_state("COMPLETED", "FAILED", within_s=40)
    assert run.shown("ExitCode") == "137:0"
    assert run.attempts[0].exit_code == 137


def test_roles_of_the_server_layout_are_on_their_nodes(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    script = (
        "import json, os, pathlib, time\n"
        "cluster = json.loads(os.environ['TF_CONFIG'])['cluster']\n"
        "print(os.environ['SBTRAIN_ROLE'], os.environ['SLURMD_NODENAME'],\n"
        "      {name: len(found) for name, found in cluster.items()})\n"
        "print('devices', os.environ.get('CUDA_VISIBLE_DEVICES'), flush=True)\n"
        "logs = pathlib.Path(os.environ['SBTRAIN_RUN_DIR'], 'attempts/0')\n"
        "others = [logs / f'{name}.log' for name in ('ps-0', 'worker-0', 'worker-1')]\n"
        "while os.environ['SBTRAIN_ROLE'] == 'chief' and not all(\n"
        "    log.exists() and 'devices' in log.read_text() for log in others\n"
        "):\n"
        "    time.sleep(0.1)  # a chief that is done ends the others\n"
    )
    run = slurm_run(
        tmp_path,
        slurm_environment,
        script,
        partition="spot",
        layout="ps",
        nodes=3,
        roles=(
            Role(name="ps", index=0, node=0),
            Role(name="chief", index=0, node=0),
            Role(name="worker", index=0, node=1),
            Role(name="worker", index=1, node=2),
        ),
    )
    runs.append(run)
    run.submit("--gres=gpu:2", "--time=5", nodelist="g1,g2,g3")
    run.wait_for_state("COMPLETED", "FAILED")
    assert run.state == "COMPLETED", run.output
    sizes = "{'chief': 1, 'worker': 2, 'ps': 1}"
    assert f"ps g1 {sizes}" in run.log("ps-0")
    assert f"chief g1 {sizes}" in run.log("chief-0")
    assert f"worker g2 {sizes}" in run.log("worker-0")
    assert f"worker g3 {sizes}" in run.log("worker-1")
    assert "devices -1" in run.log("ps-0")
    assert "devices 0,1" in run.log("worker-1")


def test_a_job_with_fewer_nodes_than_the_plan_says_so(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    run = slurm_run(tmp_path, slurm_environment, TRAIN, partition="standard", nodes=2)
    runs.append(run)
    run.submit("--time=5", behind=["--nodes=1"])
    run.wait_for_state("COMPLETED", "FAILED", within_s=30)
    assert run.shown("ExitCode") == "21:0"
    assert "the job has 1 node " in run.output


@pytest.mark.mpi
def test_the_data_set_is_staged_before_the_first_step(
    tmp_path: Path, slurm_environment: dict[str, str], slurm_folder: Path, runs: list[SlurmRun]
) -> None:
    pytest.importorskip("mpi4py")
    data = tmp_path / "digits.h5"
    data.write_bytes(bytes(range(256)) * 4096)
    script = (
        "import hashlib, os, pathlib\n"
        "path = pathlib.Path(os.environ['SBTRAIN_DATA'])\n"
        "print(path, hashlib.sha256(path.read_bytes()).hexdigest())\n"
    )
    run = slurm_run(
        tmp_path,
        slurm_environment,
        script,
        partition="standard",
        data=DataSet(paths=(str(data),), total_bytes=data.stat().st_size),
        scratch_path=str(slurm_folder / "tmp" / "%n"),
    )
    runs.append(run)
    run.submit(nodelist="c1,c2")
    run.wait_for_state("COMPLETED", "FAILED")
    assert run.state == "COMPLETED", run.output
    digest = hashlib.sha256(data.read_bytes()).hexdigest()
    for rank, node in enumerate(("c1", "c2")):
        path, found = run.log(f"worker-{rank}").split()
        assert path.startswith(str(slurm_folder / "tmp" / node))
        assert found == digest
    timings = read_timing_log(Path(run.plan.run_dir) / "attempts" / "0" / "timings.h5")
    (stage,) = timings.named("stage")
    assert stage.numbers["size_bytes"] == data.stat().st_size
    assert stage.numbers["source_bytes_read"] == data.stat().st_size


@pytest.mark.mpi
def test_data_that_is_not_there_ends_the_job_with_stagings_exit_code(
    tmp_path: Path, slurm_environment: dict[str, str], slurm_folder: Path, runs: list[SlurmRun]
) -> None:
    pytest.importorskip("mpi4py")
    run = slurm_run(
        tmp_path,
        slurm_environment,
        TRAIN,
        partition="standard",
        data=DataSet(paths=(str(tmp_path / "gone.h5"),), total_bytes=8),
        scratch_path=str(slurm_folder / "tmp" / "%n"),
    )
    runs.append(run)
    run.submit()
    run.wait_for_state("COMPLETED", "FAILED")
    assert run.shown("ExitCode") == f"{SourceError.exit_code}:0"
    assert "gone.h5" in run.output
    assert run.attempts[0].cause == "failed"
