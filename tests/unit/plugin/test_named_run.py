"""Every word by which a run, or a task of an array, may be named."""

from __future__ import annotations

from pathlib import Path

import pytest

from run_folders import make_run
from sbtrain.runs.named_run import named_run
from sbtrain.runs.run_list import ListedRun
from sbtrain_perf.errors import RequestError


def run(run_id: str, job_id: str) -> ListedRun:
    return ListedRun(run_id=run_id, job_id=job_id, run_dir="/no", workload="w", submitted="")


RUNS = (
    run("digits-20261201-034608-80d8fa", "7"),
    run("digits-20261201-034608-81aaaa", "12"),
    run("mnist-20261202-034608-aa00bb", "7"),
)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("last", 2),
        ("7", 2),  # numbers come again: the newest
        ("12", 1),
        ("mnist", 2),
        ("mnist-20261202-034608-aa00bb", 2),
        ("digits-20261201-034608-80", 0),
    ],
)
def test_a_run_goes_by_its_id_its_beginning_its_job_or_last(name: str, place: int) -> None:
    assert named_run(name, RUNS) is RUNS[place]


def test_a_beginning_of_several_ids_names_them() -> None:
    with pytest.raises(RequestError) as raised:
        named_run("digits", RUNS)
    for one in RUNS[:2]:
        assert one.run_id in raised.value.message
    assert "last" in raised.value.hint
    many = [run(f"digits-{number}", str(number)) for number in range(30)]
    with pytest.raises(RequestError, match=r"30 runs: digits-29, .*digits-25, \.\.\.$"):
        named_run("digits-", many)


def test_a_whole_id_is_meant_also_where_others_begin_with_it() -> None:
    assert named_run("a", (run("a", "1"), run("ab", "2"))).job_id == "1"


@pytest.mark.parametrize("name", ["2", "2_1", "_1", "12_", "1 2", "digitz", "lastly"])
def test_a_name_of_none_is_an_error(name: str) -> None:
    with pytest.raises(RequestError, match=f"no run or job '{name}'"):
        named_run(name, RUNS)


@pytest.mark.parametrize("name", ["last", "last_1", "7"])
def test_nothing_was_submitted_yet(name: str) -> None:
    with pytest.raises(RequestError, match="among the 0 submitted runs"):
        named_run(name, ())


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_an_error(name: str) -> None:
    with pytest.raises(RequestError, match="is empty"):
        named_run(name, RUNS)


@pytest.mark.parametrize("name", ["7_2", "digits-7-2", "last_2"])
def test_a_task_of_an_array_is_a_run_of_its_own(name: str, tmp_path: Path) -> None:
    array = make_run(tmp_path, "7", sbatch_options=("--array=0-9:2",))
    one = named_run(name, (run("older", "3"), array))
    assert (one.run_id, one.job_id) == ("digits-7-2", "7_2")
    assert one.run_dir == f"{array.run_dir}/task-2"
    with pytest.raises(RequestError, match="has no array task '3'"):
        named_run(name.replace("2", "3"), (array,))
