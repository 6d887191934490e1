"""`sbtrainctl status` and `why` of one task of an array; names that name nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import WITHOUT_SLURM, clean_environ, sbtrainctl
from run_folders import ended, make_run, started
from sbtrain.runs.run_list import append_run
from sbtrain_jobs.record.ledger import Ledger
from sbtrain_jobs.run_folder import RunFolder, plan_of_task
from sbtrain_perf.codec import plan_to_json, read_plan


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return clean_environ(PATH=WITHOUT_SLURM, SBTRAIN_HOME=str(tmp_path / "home"))


@pytest.fixture
def array(tmp_path: Path, environ: dict[str, str]) -> Path:
    """Job 7, an array of 0-3 whose tasks 0 and 1 are over; its folder."""
    run = make_run(tmp_path, "7", sbatch_options=("--nodes=2", "--array=0-3%2"))
    append_run(run, environ)
    folder = Path(run.run_dir)
    for task in ("0", "1"):
        plan = plan_of_task(read_plan(folder / "plan.json"), task)
        own = Path(plan.run_dir)
        own.mkdir()
        (own / "plan.json").write_text(plan_to_json(plan))
        for entry in (started(0), ended(0, "completed")):
            Ledger(RunFolder(path=own).ledger).append(entry)
    return folder


def test_a_tasks_name_means_that_task_alone(
    tmp_path: Path, array: Path, environ: dict[str, str]
) -> None:
    for name, task in (("7_1", "1"), ("digits-7-1", "1"), ("7_3", "3")):
        said = sbtrainctl("status", name, "--json", cwd=tmp_path, environ=environ)
        (status,) = json.loads(said.stdout)
        assert (status["run_id"], status["job_id"]) == (f"digits-7-{task}", f"7_{task}")
        assert status["problem"] == ""
        assert len(status["attempts"]) == (task == "1")
        why = sbtrainctl("why", name, "--json", cwd=tmp_path, environ=environ)
        assert json.loads(why.stdout)["run_id"] == f"digits-7-{task}"
    said = sbtrainctl("status", "7", "--json", cwd=tmp_path, environ=environ)
    (status,) = json.loads(said.stdout)
    assert [(one["state"], one["numbers"]) for one in status["tasks"]] == [
        ("unknown", "2-3"),
        ("completed", "0-1"),
    ]


@pytest.mark.parametrize("command", ["status", "logs", "why"])
@pytest.mark.parametrize("task", ["9", "01", "x", "../7"])
def test_a_task_that_the_array_does_not_have_is_an_error(
    tmp_path: Path, array: Path, environ: dict[str, str], command: str, task: str
) -> None:
    said = sbtrainctl(command, f"7_{task}", cwd=tmp_path, environ=environ)
    assert (said.returncode, said.stdout) == (2, "")
    assert f"job 7 has no array task '{task}'" in said.stderr


def test_a_job_that_is_no_array_has_no_tasks(tmp_path: Path, environ: dict[str, str]) -> None:
    append_run(make_run(tmp_path, "8"), environ)
    said = sbtrainctl("why", "8_1", cwd=tmp_path, environ=environ)
    assert said.returncode == 2
    assert "job 8 has no array task '1'" in said.stderr


@pytest.mark.parametrize("command", ["status", "logs", "why"])
def test_an_empty_name_is_an_error(
    tmp_path: Path, array: Path, environ: dict[str, str], command: str
) -> None:
    said = sbtrainctl(command, "", cwd=tmp_path, environ=environ)
    assert (said.returncode, said.stdout) == (2, "")
    assert "the name of the run or job is empty" in said.stderr


@pytest.mark.parametrize(
    "command", ["status", "logs", "why", "refit", "plan", "site", "cluster"]
)
def test_help_shows_a_percent_sign_as_one(
    tmp_path: Path, environ: dict[str, str], command: str
) -> None:
    said = sbtrainctl(command, "--help", cwd=tmp_path, environ=environ).stdout
    assert "%%" not in said
    assert command != "why" or "its 90 % interval" in " ".join(said.split())
