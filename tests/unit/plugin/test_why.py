"""`sbtrainctl why`: predictions accounted for, with the sources of the coefficients."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import WITHOUT_SLURM, clean_environ, sbtrainctl
from sbtrain.runs.run_list import ListedRun, append_run
from sbtrain.sites.layers import load_site
from sbtrain_perf.codec import plan_to_json
from sbtrain_perf.coefficients import load_coefficients
from sbtrain_perf.planner import plan_request
from sbtrain_perf.request import NodeRange, Request
from sbtrain_perf.timing_log import TimingLog


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return clean_environ(PATH=WITHOUT_SLURM, SBTRAIN_HOME=str(tmp_path / "home"))


def timed_run(
    place: Path, environ: dict[str, str], job_id: str, *, step_s: float | None, nodes: int = 2
) -> None:
    """A run as it was planned with the coefficients of the home, and ran; None: not yet."""
    run_id = f"digits-{job_id}"
    folder = place / run_id
    learnt = place / "home/coefficients.json"
    request = Request(
        script="train.py",
        workload="digits",
        partition="spot",
        layout="allreduce",
        nodes=NodeRange(low=nodes, high=nodes),
        steps=100,
        batch_per_worker=32,
    )
    decision = plan_request(
        request,
        load_site("private", {}).shape,
        load_coefficients(learnt if learnt.exists() else None),
        run_id=run_id,
        run_dir=str(folder),
    )
    assert decision.chosen is not None
    log = folder / "attempts/0/timings.h5"
    log.parent.mkdir(parents=True)
    (folder / "plan.json").write_text(plan_to_json(decision.chosen))
    append_run(
        ListedRun(
            run_id=run_id,
            job_id=job_id,
            run_dir=str(folder),
            workload="digits",
            submitted="2026-11-30T00:00:00+00:00",
        ),
        environ,
    )
    if step_s is None:
        return
    with TimingLog.create(log, plan=decision.chosen, attempt=0) as timings:
        timings.phase("start", 20.0, at_s=0.0)
        for rank in range(nodes):
            timings.steps(rank, 1, [step_s] * 100, 64)


def terms_of(said: str) -> dict[str, dict[str, object]]:
    return {term["term"]: term for term in json.loads(said)["terms"]}


def test_a_cold_prediction_names_the_shipped_figures(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    timed_run(tmp_path, environ, "7", step_s=None)
    said = sbtrainctl("why", "digits-7", cwd=tmp_path, environ=environ)
    assert said.returncode == 0, said.stderr
    assert "digits-7: planned with shipped coefficients" in said.stdout
    assert "nothing was measured yet" in said.stdout
    assert "compute.activation_s" in said.stdout
    assert "CM-DARE speed_single_worker" in " ".join(said.stdout.split())
    assert max(map(len, said.stdout.splitlines())) <= 100


def test_a_learnt_prediction_names_its_runs_and_the_biggest_miss(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    timed_run(tmp_path, environ, "7", step_s=2.0)
    timed_run(tmp_path, environ, "8", step_s=2.1)
    assert sbtrainctl("refit", cwd=tmp_path, environ=environ).returncode == 0
    timed_run(tmp_path, environ, "9", step_s=6.0)
    said = sbtrainctl("why", "9", cwd=tmp_path, environ={**environ, "COLUMNS": "120"})
    assert said.returncode == 0, said.stderr
    lines = said.stdout.splitlines()
    (step,) = [line for line in lines if line.startswith("step   ")]
    assert "learnt from 2 runs on 2 nodes, 2 samples; OUTSIDE" in step
    (miss,) = [line for line in lines if line.startswith("biggest miss")]
    assert "training steps: 6 min" in miss
    assert "outside its 90 %" in miss
    assert "step was learnt from digits-7 on 2 nodes: 2.0 s" in lines

    said = sbtrainctl("why", "9", "--json", cwd=tmp_path, environ=environ)
    term = terms_of(said.stdout)["step"]
    assert term["runs"] == ["digits-7", "digits-8"]
    assert term["inside"] is False
    assert term["measured_s"] == 6.0
    assert isinstance(term["miss_s"], float)
    assert 380.0 < term["miss_s"] < 410.0
    assert term["figures"] == []


def test_the_coefficients_of_the_time_are_looked_at(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    timed_run(tmp_path, environ, "7", step_s=2.0)
    assert sbtrainctl("refit", cwd=tmp_path, environ=environ).returncode == 0
    timed_run(tmp_path, environ, "8", step_s=2.0)
    assert sbtrainctl("refit", cwd=tmp_path, environ=environ).returncode == 0
    said = sbtrainctl("why", "8", "--json", cwd=tmp_path, environ=environ)
    assert json.loads(said.stdout)["known"] is True
    assert terms_of(said.stdout)["step"]["runs"] == ["digits-7"]
    first = sbtrainctl("why", "7", "--json", cwd=tmp_path, environ=environ)
    assert json.loads(first.stdout)["coefficients"] == "shipped"
    assert terms_of(first.stdout)["step"]["runs"] == []
    (tmp_path / "home/coefficients.1.json").unlink()
    said = sbtrainctl("why", "8", cwd=tmp_path, environ=environ)
    assert "no longer there" in said.stdout


def test_a_run_that_is_not_there_is_an_error(tmp_path: Path, environ: dict[str, str]) -> None:
    said = sbtrainctl("why", "5", cwd=tmp_path, environ=environ)
    assert said.returncode == 2
    assert "there is no run or job '5'" in said.stderr
