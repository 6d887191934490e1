"""The user's home of sbtrain and the list of runs in it."""

from __future__ import annotations

import multiprocessing
import stat
from pathlib import Path

import pytest

from sbtrain.errors import HomeError
from sbtrain.home import home, learnt_coefficients, made_home
from sbtrain.runs.run_list import ListedRun, append_run, read_runs


def run(number: int) -> ListedRun:
    return ListedRun(
        run_id=f"r-{number}",
        job_id=str(number),
        run_dir=f"/runs/r-{number}",
        workload="w",
        submitted="2026-11-30T00:00:00+00:00",
    )


def test_where_the_home_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert home({}) == Path("/home/ada/.local/share/sbtrain")
    assert home({"XDG_DATA_HOME": "/data"}) == Path("/data/sbtrain")
    assert home({"XDG_DATA_HOME": "relative"}) == Path("/home/ada/.local/share/sbtrain")
    assert home({"XDG_DATA_HOME": "/data", "SBTRAIN_HOME": "~/own"}) == Path("/home/ada/own")


def test_runs_are_kept_for_the_user_alone(tmp_path: Path) -> None:
    environ = {"SBTRAIN_HOME": str(tmp_path / "a/b")}
    assert read_runs(environ).runs == ()
    append_run(run(1), environ)
    append_run(run(2), environ)
    assert read_runs(environ).runs == (run(1), run(2))
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a/b/runs.jsonl").stat().st_mode) == 0o600


def test_a_torn_line_costs_no_other(tmp_path: Path) -> None:
    environ = {"SBTRAIN_HOME": str(tmp_path)}
    append_run(run(1), environ)
    with (tmp_path / "runs.jsonl").open("a") as stream:
        stream.write('{"run_id": "r-2", "jo')
    append_run(run(3), environ)
    with (tmp_path / "runs.jsonl").open("a") as stream:
        stream.write('[1]\n{"run_id": 7}\n\n' + "[" * 100_000 + "\n")
    listed = read_runs(environ)
    assert listed.runs == (run(1), run(3))
    assert listed.left_out == 4


def _append_many(folder: str, first: int) -> None:
    for number in range(first, first + 20):
        append_run(run(number), {"SBTRAIN_HOME": folder})


def test_submissions_at_once_do_not_tear_lines(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [
        context.Process(target=_append_many, args=(str(tmp_path), 100 * w)) for w in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = read_runs({"SBTRAIN_HOME": str(tmp_path)}).runs
    assert sorted(int(one.job_id) for one in found) == [
        100 * w + n for w in range(4) for n in range(20)
    ]


def test_a_home_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environ = {"SBTRAIN_HOME": str(tmp_path / "file/home")}
    with pytest.raises(HomeError, match="cannot make") as raised:
        made_home(environ)
    assert raised.value.exit_code == 16
    assert "SBTRAIN_HOME" in raised.value.hint
    assert learnt_coefficients(environ) is None
