"""`sbtrainctl`: plan, site and refit, on real files."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path

import pytest

from commands import WITHOUT_SLURM, clean_environ, sbtrainctl
from run_folders import make_run
from sbtrain.commands.ctl import run
from sbtrain.runs.run_list import append_run
from sbtrain.sites.layers import load_site
from sbtrain_perf.coefficients import load_coefficients
from sbtrain_perf.planner import plan_request
from sbtrain_perf.request import NodeRange, Plan, Request
from sbtrain_perf.timing_log import TimingLog


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return clean_environ(PATH=WITHOUT_SLURM, SBTRAIN_HOME=str(tmp_path / "home"))


# Refit


def measured_run(place: Path, environ: dict[str, str], job_id: str) -> Plan:
    """A planned run whose steps took 7.5 s each."""
    run = make_run(place, job_id)
    append_run(run, environ)
    request = Request(
        script="train.py",
        workload=run.workload,
        partition="spot",
        layout="allreduce",
        nodes=NodeRange(low=2, high=2),
        steps=100,
        batch_per_worker=32,
    )
    decision = plan_request(
        request,
        load_site("private", {}).shape,
        load_coefficients(),
        run_id=run.run_id,
        run_dir=run.run_dir,
    )
    assert decision.chosen is not None
    log_path = Path(run.run_dir) / "attempts/0/timings.h5"
    log_path.parent.mkdir(parents=True)
    with TimingLog.create(log_path, plan=decision.chosen, attempt=0) as log:
        log.phase("start", 20.0, at_s=0.0)
        for rank in range(2):
            log.steps(rank, 1, [7.5] * 100, 64)
    return decision.chosen


def test_refit_learns_and_keeps_what_was(tmp_path: Path, environ: dict[str, str]) -> None:
    measured_run(tmp_path, environ, "7")
    home = tmp_path / "home"
    said = sbtrainctl("refit", "--dry-run", cwd=tmp_path, environ=environ)
    assert said.returncode == 0, said.stderr
    assert "nothing was written" in said.stdout
    assert not (home / "coefficients.json").exists()

    said = sbtrainctl("refit", "--json", cwd=tmp_path, environ=environ)
    first = json.loads(said.stdout)
    assert first["generation"] == 1
    assert first["written"] == str(home / "coefficients.json")
    step = next(error for error in first["errors"] if error["term"] == "step")
    assert step["after"] < 0.1 < step["before"]
    assert stat.S_IMODE((home / "coefficients.json").stat().st_mode) == 0o600

    measured_run(tmp_path, environ, "8")
    text = sbtrainctl("refit", cwd=tmp_path, environ=environ).stdout
    assert "2 timing logs; generation 2 written" in text
    assert load_coefficients(home / "coefficients.json").generation == 2
    assert load_coefficients(home / "coefficients.1.json").generation == 1

    again = sbtrainctl("refit", cwd=tmp_path, environ=environ).stdout
    assert "nothing new to learn in 2 timing logs" in again
    back = sbtrainctl("refit", "--rollback", cwd=tmp_path, environ=environ)
    assert "rolled back from generation 2 to generation 1" in back.stdout, back.stderr
    assert load_coefficients(home / "coefficients.json").generation == 1
    third = json.loads(sbtrainctl("refit", "--json", cwd=tmp_path, environ=environ).stdout)
    assert third["generation"] == 3
    for left in ("1", "shipped"):
        said = sbtrainctl("refit", "--rollback", cwd=tmp_path, environ=environ).stdout
        assert said.partition("; ")[0].endswith(left)
    assert not (home / "coefficients.json").exists()
    said = sbtrainctl("refit", "--rollback", cwd=tmp_path, environ=environ)
    assert said.returncode != 0
    assert "nothing to roll back" in said.stderr


def test_the_next_plan_uses_what_was_learnt(tmp_path: Path, environ: dict[str, str]) -> None:
    plan = measured_run(tmp_path, environ, "7")
    words = (
        *("plan", "--site", "private", "--json", "--train-name", plan.workload),
        *("--train-layout=allreduce", "--train-steps=100", "-p", plan.partition, "-N2"),
        *("--train-batch", str(plan.batch_per_worker)),
    )
    before = json.loads(sbtrainctl(*words, cwd=tmp_path, environ=environ).stdout)["chosen"]
    assert sbtrainctl("refit", cwd=tmp_path, environ=environ).returncode == 0
    after = json.loads(sbtrainctl(*words, cwd=tmp_path, environ=environ).stdout)["chosen"]
    assert (before["coefficients"], after["coefficients"]) == ("shipped", "generation 1")
    assert (
        abs(after["prediction"]["step_s"] - 7.5)
        < 0.5
        < abs(before["prediction"]["step_s"] - 7.5)
    )


def test_refit_passes_over_damaged_logs(tmp_path: Path, environ: dict[str, str]) -> None:
    measured_run(tmp_path, environ, "7")
    damaged = tmp_path / "digits-7/attempts/1/timings.h5"
    damaged.parent.mkdir()
    damaged.write_bytes(b"torn")
    said = sbtrainctl("refit", "--json", cwd=tmp_path, environ=environ)
    assert said.returncode == 0
    assert [one["path"] for one in json.loads(said.stdout)["skipped"]] == [str(damaged)]
    assert "warning: skipped" in said.stderr


def test_refit_is_not_held_up_by_a_damaged_log(tmp_path: Path, environ: dict[str, str]) -> None:
    measured_run(tmp_path, environ, "7")
    measured_run(tmp_path, environ, "8")
    damaged = tmp_path / "digits-8/attempts/0/timings.h5"
    flipped = bytearray(damaged.read_bytes())
    for at in range(50, len(flipped), 97):
        flipped[at] ^= 255
    damaged.write_bytes(flipped)
    said = sbtrainctl("refit", "--json", cwd=tmp_path, environ=environ)
    data = json.loads(said.stdout)
    assert (data["logs"], [one["path"] for one in data["skipped"]]) == (1, [str(damaged)])
    assert f"warning: skipped {damaged}" in said.stderr
    why = sbtrainctl("why", "8", cwd=tmp_path, environ=environ)
    assert why.returncode == 0
    assert f"warning: skipped {damaged}" in why.stderr


def test_refit_names_runs_whose_folder_is_gone(tmp_path: Path, environ: dict[str, str]) -> None:
    measured_run(tmp_path, environ, "7")
    for job in ("8", "9"):
        measured_run(tmp_path, environ, job)
        shutil.rmtree(tmp_path / f"digits-{job}")
    said = sbtrainctl("refit", "--json", cwd=tmp_path, environ=environ)
    assert said.returncode == 0
    assert json.loads(said.stdout)["gone"] == ["digits-8", "digits-9"]
    (warning,) = said.stderr.splitlines()
    assert warning == (
        "sbtrainctl: warning: the folders of 2 runs of the list cannot be found, so nothing "
        "is learnt from there: digits-8, digits-9"
    )


def test_refit_with_nothing_to_learn_from(tmp_path: Path, environ: dict[str, str]) -> None:
    said = sbtrainctl("refit", cwd=tmp_path, environ=environ)
    assert said.returncode == 4
    assert "there is no timing log to learn from" in said.stderr


def test_refit_refuses_damaged_coefficients(tmp_path: Path, environ: dict[str, str]) -> None:
    measured_run(tmp_path, environ, "7")
    learnt = tmp_path / "home/coefficients.json"
    hint = f"hint: to start again from the shipped coefficients: mv {learnt} {learnt}.damaged\n"
    for content in (b"{}", b"nonsense", b"\xff\xfe", b"[" * 100_000):
        learnt.write_bytes(content)
        for words in (("refit",), ("refit", "--rollback")):
            said = sbtrainctl(*words, cwd=tmp_path, environ=environ)
            assert said.returncode == 5
            assert said.stderr.endswith(hint)


def test_a_rollback_to_what_is_damaged_says_how_to_start_again(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    for job in ("7", "8"):
        measured_run(tmp_path, environ, job)
        assert sbtrainctl("refit", cwd=tmp_path, environ=environ).returncode == 0
    learnt, before = (tmp_path / "home" / f"coefficients{n}.json" for n in ("", ".1"))
    before.write_text("nonsense")
    said = sbtrainctl("refit", "--rollback", cwd=tmp_path, environ=environ)
    assert said.returncode == 5
    assert f"error: {before} is not a coefficients file" in said.stderr
    assert f": mv {learnt} {learnt}.damaged\n" in said.stderr
    assert load_coefficients(learnt).generation == 2


# Plan and site


def test_plan_takes_sbtrains_words(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "t.sh").write_text("#!/bin/sh\n#SBTRAIN --train-steps=77\n#SBATCH -N3\n")
    words = ("plan", "--json", "--site=private", "--train-layout", "allreduce", "t.sh", "x")
    said = sbtrainctl(*words, cwd=tmp_path, environ=environ)
    assert said.returncode == 0, said.stderr
    chosen = json.loads(said.stdout)["chosen"]
    assert (chosen["nodes"], chosen["steps"], chosen["script_args"]) == (3, 77, ["x"])
    assert not (tmp_path / ".sbtrain").exists()


def test_plan_without_a_script(tmp_path: Path, environ: dict[str, str]) -> None:
    said = sbtrainctl("plan", "--site", "bluewaters", cwd=tmp_path, environ=environ)
    assert said.returncode == 0
    assert "Chosen: " in said.stdout
    assert (
        "usage: sbtrainctl plan"
        in sbtrainctl("plan", "--help", cwd=tmp_path, environ=environ).stdout
    )


def test_plan_says_why_nothing_fits(tmp_path: Path, environ: dict[str, str]) -> None:
    words = ("plan", "--site=private", "--train-objective=deadline:1s", "--train-steps=9999")
    said = sbtrainctl(*words, cwd=tmp_path, environ=environ)
    assert said.returncode == 3
    assert "No plan: no plan keeps the deadline" in said.stdout


@pytest.mark.parametrize("name", ["generic", "private", "bluewaters"])
def test_bundled_sites_are_right(name: str, tmp_path: Path, environ: dict[str, str]) -> None:
    said = sbtrainctl("site", "check", name, cwd=tmp_path, environ=environ)
    assert (said.returncode, said.stderr) == (0, "")
    shown = sbtrainctl("site", "show", name, cwd=tmp_path, environ=environ).stdout
    assert shown.startswith(f"cluster {name} ")
    assert max(map(len, shown.splitlines())) <= 140
    data = json.loads(
        sbtrainctl("site", "show", "--json", name, cwd=tmp_path, environ=environ).stdout
    )
    assert data["name"] == name


def test_site_check_names_every_problem(tmp_path: Path, environ: dict[str, str]) -> None:
    (tmp_path / "own.toml").write_text('name = ""\nspeed = 3\n')
    said = sbtrainctl("site", "check", "./own.toml", cwd=tmp_path, environ=environ)
    assert said.returncode == 10
    assert "own.toml:2: speed:" in said.stderr
    words = ("site", "check", "./own.toml", "--json")
    data = json.loads(sbtrainctl(*words, cwd=tmp_path, environ=environ).stdout)
    assert len(data["problems"]) == len(said.stderr.splitlines()) > 1


def test_help_of_each_command(tmp_path: Path, environ: dict[str, str]) -> None:
    listed = sbtrainctl("--help", cwd=tmp_path, environ=environ).stdout
    for name in ("plan", "status", "logs", "refit", "why", "site", "cluster"):
        assert f"    {name} " in listed
        said = sbtrainctl(name, "--help", cwd=tmp_path, environ=environ)
        assert said.stdout.startswith(f"usage: sbtrainctl {name} ")
    assert sbtrainctl("--version", cwd=tmp_path, environ=environ).stdout.startswith("sbtrain ")
    assert sbtrainctl(cwd=tmp_path, environ=environ).returncode == 2
    assert sbtrainctl("stat", cwd=tmp_path, environ=environ).returncode == 2


def test_stage_speaks_the_staging_programs_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "data"
    source.write_bytes(b"x" * 1000)
    assert run(["stage", "plan", "--nodes", "4", "--json", str(source)], {}) == 0
    (moved,) = json.loads(capsys.readouterr().out)
    assert 1000 in moved.values()
