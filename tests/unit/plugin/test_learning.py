"""What a run's job learns when it ends: what refit would, of the newest runs."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from test_ctl import measured_run

from commands import WITHOUT_SLURM, clean_environ
from run_folders import make_run
from sbtrain.home import learnt_coefficients
from sbtrain.runs import learning
from sbtrain.runs.learning import learn_at_end
from sbtrain.runs.run_list import append_run
from sbtrain_perf.coefficients import Coefficients, load_coefficients
from sbtrain_perf.request import Plan


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return clean_environ(PATH=WITHOUT_SLURM, SBTRAIN_HOME=str(tmp_path / "home"))


def learnt(plan: Plan, environ: dict[str, str]) -> Coefficients | None:
    learn_at_end(plan, environ)
    path = learnt_coefficients(environ)
    return None if path is None else load_coefficients(path)


def test_a_run_that_ends_is_learnt_from(tmp_path: Path, environ: dict[str, str]) -> None:
    first = measured_run(tmp_path, environ, "7")
    found = learnt(first, environ)
    assert found is not None
    assert (found.generation, found.sources) == (1, (first.run_id,))
    assert [step.runs for step in found.learnt.steps] == [(first.run_id,)]
    second = measured_run(tmp_path, environ, "8")
    found = learnt(second, environ)
    assert found is not None
    assert (found.generation, len(found.sources)) == (2, 2)
    assert (tmp_path / "home/coefficients.1.json").exists()
    assert learnt(second, environ) == found  # nothing new


@pytest.mark.parametrize("why", ["off", "not listed", "no times"])
def test_where_there_is_nothing_to_learn_nothing_is_written(
    tmp_path: Path, environ: dict[str, str], why: str
) -> None:
    plan = measured_run(tmp_path, environ, "7")
    if why == "off":
        environ["SBTRAIN_REFIT"] = "0"
    elif why == "not listed":
        (tmp_path / "home/runs.jsonl").unlink()
    else:
        for log in Path(plan.run_dir).rglob("timings.h5"):
            log.unlink()
    assert learnt(plan, environ) is None


def test_of_many_runs_the_newest_of_its_workload_and_of_any(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(learning, "MOST_RUNS", 2)
    plans = [measured_run(tmp_path, environ, str(job)) for job in range(3)]
    for job in range(3, 6):
        other = make_run(tmp_path, str(job))
        append_run(dataclasses.replace(other, workload="other"), environ)
    assert learnt(plans[0], environ) is None  # its own is not among them
    found = learnt(plans[-1], environ)
    assert found is not None
    assert set(found.sources) == {plan.run_id for plan in plans[1:]}


def test_one_learns_at_a_time(tmp_path: Path, environ: dict[str, str]) -> None:
    plan = measured_run(tmp_path, environ, "7")
    mark = tmp_path / "home/.learning"
    mark.touch()
    assert learnt(plan, environ) is None
    os.utime(mark, (0, 0))  # it was killed
    assert learnt(plan, environ) is not None
    assert not mark.exists()


def test_the_tasks_of_an_array_learn_once_a_minute(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    plan = measured_run(tmp_path, environ, "7")
    task = Path(plan.run_dir) / "task-3/attempts/0"
    task.mkdir(parents=True)
    (Path(plan.run_dir) / "attempts/0/timings.h5").rename(task / "timings.h5")
    first = learnt(plan, environ)
    assert first is not None
    measured_run(tmp_path, environ, "8")
    assert learnt(plan, environ) == first
    os.utime(tmp_path / "home/coefficients.json", (0, 0))
    found = learnt(plan, environ)
    assert found is not None
    assert found.generation == 2
