"""A run on a real Slurm teaches the next plan: its timing log, learnt from, planned again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import clean_environ, sbtrain, sbtrainctl
from counting_trainer import TRAIN

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
