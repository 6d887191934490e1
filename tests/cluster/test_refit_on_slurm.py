"""A run on a real Slurm teaches the next plan: its timing log, learnt from, planned again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from commands import clean_environ, sbtrain, sbtrainctl
from counting_trainer import TRAIN
from sbtrain_perf.coefficients import load_coefficients
from sbtrain_perf.timing_log import read_timing_log

STEPS, STEP_S = 150, 0.02


@pytest.fixture
def environ(slurm_environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return clean_environ(**slurm_environment, SBTRAIN_HOME=str(tmp_path / "home"))


def planned_step_s(place: Path, environ: dict[str, str]) -> float:
    words = ["-p", "spot", "--train-layout=allreduce", "--train-nodes=2"]
    words += [f"--train-steps={STEPS}", "train.py"]
    told = sbtrainctl("plan", "--json", *words, cwd=place, environ=environ)
    assert told.returncode == 0, told.stderr
    step_s: float = json.loads(told.stdout)["chosen"]["prediction"]["step_s"]
    return step_s


@pytest.mark.parametrize("by_itself", [True, False])
def test_what_a_run_measured_is_what_the_next_plan_says(
    tmp_path: Path, environ: dict[str, str], *, by_itself: bool
) -> None:
    """Its job learns when it has ended, unless that is switched off."""
    script = "#!/usr/bin/env python3\n" + TRAIN.replace("STEP_S", str(STEP_S))
    (tmp_path / "train.py").write_text(script)
    if not by_itself:
        environ = {**environ, "SBTRAIN_REFIT": "0"}
    before = planned_step_s(tmp_path, environ)
    run = sbtrain(
        *("--wait", "-p", "spot", "--train-layout=allreduce", "--train-nodes=2"),
        *(f"--train-steps={STEPS}", "train.py"),
        cwd=tmp_path,
        environ=environ,
    )
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "home/coefficients.json").exists() is by_itself
    if not by_itself:
        learnt = sbtrainctl("refit", "--json", cwd=tmp_path, environ=environ)
        assert learnt.returncode == 0, learnt.stderr
        errors = {one["term"]: one for one in json.loads(learnt.stdout)["errors"]}
        assert errors["step"]["after"] < errors["step"]["before"]
    after = planned_step_s(tmp_path, environ)
    assert abs(after - STEP_S) < abs(before - STEP_S)
    assert after == pytest.approx(STEP_S, rel=0.5)


DDP = """\
import os
os.environ |= {"RANK": os.environ["SLURM_PROCID"], "WORLD_SIZE": os.environ["SLURM_NTASKS"]}
import torch
from torch.nn.parallel import DistributedDataParallel
torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(60):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
torch.distributed.destroy_process_group()
"""
SCRIPT = f"""\
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --time=5
export MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
srun {sys.executable} ddp.py
"""


@pytest.mark.slow
@pytest.mark.frameworks
def test_a_script_that_knows_nothing_of_us_is_learnt_from(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    pytest.importorskip("torch")
    (tmp_path / "ddp.py").write_text(DDP)
    (tmp_path / "run.sh").write_text(SCRIPT)
    said = sbtrain("--wait", "--train-steps=60", "run.sh", cwd=tmp_path, environ=environ)
    assert said.returncode == 0, said.stderr
    assert "runs once, on the first node, as with sbatch" in said.stderr
    (log,) = (tmp_path / ".sbtrain/runs").glob("*/attempts/0/timings.h5")
    timings = read_timing_log(log)
    assert [len(one.step) for one in timings.ranks] == [59, 59]
    assert [role.node for role in timings.plan.roles] == [0, 1]
    assert timings.described("parameters") == 72
    found = load_coefficients(tmp_path / "home/coefficients.json")
    assert [step.workload for step in found.learnt.steps] == ["run"]
