"""On a Slurm that nobody has configured, and of which no file says that it is a private one."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path

import pytest

from commands import clean_environ, sbtrain, sbtrainctl
from counting_trainer import TRAIN
from sbtrain.slurm.command_client import CommandsClient
from sbtrain.slurm.states import JobState
from sbtrain_jobs.process import run_command

pytestmark = pytest.mark.slurm

_ASKED = re.compile(r"^\s+REQUEST_(\w+)\s+\(\s*\d+\) count:(\d+)", re.M)
_WHAT_THERE_IS = {
    "PARTITION_INFO",
    "NODE_INFO",
    "BUILD_INFO",
    "PING",
    "CONFIG",
    "ASSOC_MGR_INFO",
}


@pytest.fixture
def environ(slurm_environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    etc = Path(slurm_environment["SLURM_CONF"]).parent
    shutil.copytree(etc, tmp_path / "slurm")
    gpus = "try:\n    import torch\nexcept ImportError:\n    pass\n"
    (tmp_path / "train.py").write_text(gpus + TRAIN.replace("STEP_S", "0.02"))
    (tmp_path / "cores.py").write_text(TRAIN.replace("STEP_S", "0.02"))
    conf = str(tmp_path / "slurm/slurm.conf")
    own = {"SBTRAIN_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), "SLURM_CONF": conf}
    return clean_environ(**{**slurm_environment, **own})


def questions(environ: dict[str, str]) -> dict[str, int]:
    """About the cluster, put to slurmctld since the last reset, by name."""
    said = run_command(["sdiag"], env=environ, timeout_s=60).stdout
    return {name: int(count) for name, count in _ASKED.findall(said) if name in _WHAT_THERE_IS}


def test_a_training_is_planned_staged_and_run(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "rows").write_bytes(bytes(100_000))
    words = ("--parsable", "-p", "spot", "-N2", "--train-steps=20", "-o", "job.out")
    said = sbtrain(*words, "--train-data=rows", "train.py", cwd=tmp_path, environ=environ)
    assert said.returncode == 0, said.stderr
    assert "warning" not in said.stderr
    slurm, job_id = CommandsClient(environ=environ), said.stdout.strip()
    deadline = time.monotonic() + 120
    while not all(job.over for job in slurm.jobs_by_id([job_id])):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    output = (tmp_path / "job.out").read_text()
    (job,) = slurm.jobs_by_id([job_id])
    assert job.state == JobState.COMPLETED, output
    assert "training is complete" in output
    assert "staged in" in output
    (plan,) = (tmp_path / ".sbtrain/runs").glob("*/plan.json")
    read = json.loads(plan.read_text())
    assert (read["cluster"], read["partition"], read["gpus_per_node"]) == (
        *("sbtrain", "spot:K80"),
        2,
    )


def test_it_costs_three_questions_and_then_none(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    for most in (3, 0):
        run_command(["sdiag", "-r"], env=environ, timeout_s=60)
        words = ("--train-explain", "--train-steps=20", "train.py")
        said = sbtrain(*words, cwd=tmp_path, environ=environ)
        assert said.returncode == 0, said.stderr
        asked = questions(environ)
        assert sum(asked.values()) <= most, asked
        assert bool(asked) is bool(most)


@pytest.mark.parametrize("left_out", [False, True], ids=["", "though a site file has none"])
def test_gpus_can_be_asked_for(
    tmp_path: Path, environ: dict[str, str], *, left_out: bool
) -> None:
    if left_out:
        tables = "".join(
            f"[partitions.{one}]\ngpus_per_node = 0\n" for one in ("spot", "urgent")
        )
        (tmp_path / "site.toml").write_text(tables)
        environ |= {"SBTRAIN_SITE": str(tmp_path / "site.toml")}
    for words in (("--gres=gpu:1", "-p", "spot"), ("--gres=gpu:k80:2",), ("-G2", "-N1")):
        said = sbtrain(
            *words, "--train-explain", "--train-steps=20", "train.py",
            cwd=tmp_path, environ=environ,
        )  # fmt: skip
        assert said.returncode == 0, said.stderr
        assert re.search(r"^> +(spot|urgent):K80 ", said.stdout, re.M), said.stdout


def test_a_program_that_can_use_no_gpu_is_given_none(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\nsrun python cores.py\n")
    for name, gpus in (("cores.py", False), ("run.sh", False), ("train.py", True)):
        words = ("-p", "spot", "--train-steps=20000", "--train-dry-run", name)
        said = sbtrain(*words, cwd=tmp_path, environ=environ)
        assert said.returncode == 0, said.stderr
        assert ("--gres=gpu" in said.stdout) is gpus, name
        assert ("planned without GPUs" in said.stderr) is not gpus


def test_slurms_word_is_a_site_file(tmp_path: Path, environ: dict[str, str]) -> None:
    for words, status in (
        (("init", "--output=own.toml"), 0),
        (("check", "./own.toml"), 0),
        (("init", "--output=own.toml"), 10),  # it is there
    ):
        said = sbtrainctl("site", *words, cwd=tmp_path, environ=environ)
        assert said.returncode == status, said.stderr
    own = tmp_path / "own.toml"
    own.write_text(own.read_text().replace("nodes = 8", "nodes = 9", 1))
    said = sbtrainctl("site", "check", "./own.toml", cwd=tmp_path, environ=environ)
    assert said.returncode == 10
    assert re.search(r"own\.toml:\d+: partitions\.spot\.nodes: 9, Slurm has 8", said.stderr)
    users = tmp_path / ".config/sbtrain/site.toml"
    users.parent.mkdir(parents=True)
    users.write_text("[partitions.spot]\nprice_per_node_hour = 2\n")
    said = sbtrainctl("site", "show", "--origin", "--json", cwd=tmp_path, environ=environ)
    stated = {row["key"]: (row["value"], row["origin"]) for row in json.loads(said.stdout)}
    assert stated["partitions.spot.price_per_node_hour"] == (2, str(users))
    assert stated["partitions.spot.nodes"] == (8, "Slurm")
    for words in (("check",), ("check", str(users))):  # as little as one key
        said = sbtrainctl("site", *words, cwd=tmp_path, environ=environ)
        assert (said.returncode, said.stdout) == (0, f"{users}: nothing is wrong\n")
    users.chmod(0o666)
    said = sbtrainctl("site", "show", cwd=tmp_path, environ=environ)
    assert (said.returncode, "everybody may write" in said.stderr) == (10, True)
