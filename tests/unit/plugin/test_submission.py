"""From words, directives and environment to a request: who wins, what binds, what is wrong."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from plans import example_plan, example_prediction
from sbtrain.errors import ScriptError
from sbtrain.options.argv import Setting, split_command_line
from sbtrain.options.directives import read_directives
from sbtrain.options.flag_table import FLAGS
from sbtrain.options.flags import read_flags
from sbtrain.options.script import Script, read_script
from sbtrain.submission.additions import additions, lead_s, with_options
from sbtrain.submission.asked import (
    Asked,
    ask,
    asked_signal,
    environment_settings,
    waits,
    workload_name,
)
from sbtrain_jobs.ending.grace import warning_s
from sbtrain_perf.errors import MissingExtraError, RequestError
from sbtrain_perf.request import NodeRange

PLAIN = "import sys\n"
JOINS = "from sbtrain_jobs import join\n"
RESUMES = JOINS + "run = join()\nrun.steps(start=run.resume(load), save=save)\n"


def asked(
    *argv: str,
    lines: str = "",
    body: str = PLAIN,
    environ: dict[str, str] | None = None,
    cwd: Path = Path("/home/ada"),
) -> Asked:
    script = Script(
        name="train.py",
        folder=cwd,
        content=f"#!/usr/bin/env python3\n{lines}\n{body}".encode(),
        shown="train.py",
    )
    line = split_command_line([*argv, "train.py"], FLAGS)
    found = read_directives(script.text, file="train.py", train_flags=FLAGS)
    options = read_flags(line.train, found.train)
    return ask(line, options, script, found, cwd=cwd, environ=environ or {})


def test_command_line_beats_environment_beats_script() -> None:
    lines = "#SBATCH -p from-script -t 10"
    environ = {"SBATCH_PARTITION": "from-environment", "SBATCH_TIMELIMIT": "20"}
    assert asked(lines=lines).request.partition == "from-script"
    said = asked(lines=lines, environ=environ).request
    assert (said.partition, said.time_limit_s) == ("from-environment", 1200)
    said = asked("-p", "from-words", lines=lines, environ=environ).request
    assert (said.partition, said.time_limit_s) == ("from-words", 1200)


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ((), NodeRange()),
        (("-N4",), NodeRange(low=4, high=4)),
        (("-N", "2-4"), NodeRange(low=2, high=4)),
        (("-N", "1k"), NodeRange(low=1024, high=1024)),
        (("-N", "1,4,8-16:2"), NodeRange(low=1, high=16)),
        (("-n", "4"), NodeRange(low=1, high=4)),
        (("-n", "8", "--ntasks-per-node=2"), NodeRange(low=1, high=4)),
        (("-n", "8", "--tasks-per-node=2", "-N4"), NodeRange(low=4, high=4)),
        (("--train-nodes=3",), NodeRange(low=3, high=3)),
        (("--train-nodes=2-6", "-N", "4-8"), NodeRange(low=4, high=6)),
        (("--train-nodes=auto", "-N", "4-8"), NodeRange(low=4, high=8)),
        (("-w", "c[1-3],g1"), NodeRange(low=4)),
        (("-w", "c[1-3]", "-N", "2-8"), NodeRange(low=3, high=8)),
        (("-w", "./hosts"), NodeRange()),
    ],
)
def test_nodes(argv: tuple[str, ...], expected: NodeRange) -> None:
    assert asked(*argv).request.nodes == expected


@pytest.mark.parametrize(
    ("argv", "each"),
    [
        ((), 0),
        (("-N2",), 0),
        (("--ntasks-per-node=2",), 2),
        (("-N2", "--tasks-per-node=4"), 4),
        (("-N2", "-n4"), 2),
        (("-N2", "-n3"), 2),
        (("-N2", "-n2", "--ntasks-per-node=2"), 1),
        (("--train-nodes=2", "-n8"), 4),
        (("-n8",), 0),
        (("-N2-4", "-n8", "--ntasks-per-node=2"), 2),
        (("--gpus-per-task=1",), 1),
        (("-N2", "-n4", "--gpus-per-task=1"), 2),
    ],
)
def test_tasks_that_the_user_counts_are_trainers(argv: tuple[str, ...], each: int) -> None:
    assert asked(*argv).request.workers_per_node == each


@pytest.mark.parametrize(
    ("argv", "lines", "expected"),
    [
        (("--train-nodes=3",), "#SBATCH -N 4", NodeRange(low=3, high=3)),
        (("--train-nodes=4-16",), "#SBATCH -N 2-8", NodeRange(low=4, high=16)),
        (("--train-nodes=auto",), "#SBATCH -N 4", NodeRange()),
        (("-N2",), "#SBTRAIN --train-nodes=4-8", NodeRange(low=2, high=2)),
        (("-N2-6", "--train-nodes=4-8"), "#SBATCH -N 1", NodeRange(low=4, high=6)),
        ((), "#SBATCH -N 2-6\n#SBTRAIN --train-nodes=4-8", NodeRange(low=4, high=6)),
    ],
)
def test_nodes_of_the_command_line_beat_those_of_the_script(
    argv: tuple[str, ...], lines: str, expected: NodeRange
) -> None:
    assert asked(*argv, lines=lines).request.nodes == expected


@pytest.mark.parametrize(
    ("argv", "lines", "environ", "expected", "word"),
    [
        (("--train-no-resume",), "#SBATCH --requeue", {}, False, "--no-requeue"),
        (("--train-no-resume",), "#SBTRAIN --train-checkpoint=c", {}, False, None),
        (("--train-no-resume",), "", {"SBATCH_REQUEUE": "1"}, False, "--no-requeue"),
        (("--requeue",), "#SBTRAIN --train-no-resume", {}, True, None),
        (("--train-checkpoint=c",), "#SBTRAIN --train-no-resume", {}, True, None),
        (("--train-checkpoint=c",), "#SBATCH --no-requeue", {}, False, None),
    ],
)
def test_of_resuming_the_command_line_beats_environment_and_script(
    argv: tuple[str, ...],
    lines: str,
    environ: dict[str, str],
    expected: bool,
    word: str | None,
) -> None:
    said = asked(*argv, lines=lines, environ=environ)
    assert said.request.resumable is expected
    plan = dataclasses.replace(
        example_plan(partition="spot", nodes=4), resumable=said.request.resumable
    )
    assert [w for w in additions(said, plan).words if "requeue" in w] == (
        [word] if word else []
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("-N", "two"), "--nodes=two is not a number of nodes"),
        (("-N", "0"), "--nodes=0"),
        (("-N", "4-2"), "--nodes=4-2"),
        (("-n", "x"), "--ntasks=x"),
        (("-t", "soon"), "--time: 'soon' is not a time limit"),
        (("-N4", "--train-nodes=2"), "leave no number of nodes"),
        (("-N4", "-n2"), "leave no number of nodes"),
        (("-N1", "-w", "c[1-2]"), "leave no number of nodes"),
        (("-w", "c[1-"), "--nodelist: "),
        (("--train-data=a:b",), "cannot be handed on: /home/ada/a:b"),
        (("--train-data=no-such.h5",), "cannot read /home/ada/no-such.h5: No such file"),
        (("--train-no-resume", "--requeue"), "--train-no-resume contradicts"),
        (("--train-no-resume", "--train-checkpoint=c"), "--train-no-resume contradicts"),
    ],
)
def test_contradictions(argv: tuple[str, ...], message: str) -> None:
    with pytest.raises(RequestError, match=message) as raised:
        asked(*argv)
    assert raised.value.hint
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("argv", "body", "resumable"),
    [
        ((), PLAIN, False),
        ((), RESUMES, True),
        ((), JOINS, False),
        ((), JOINS + "for step in join().steps(): pass\n", False),
        ((), JOINS + "for step in join().steps(save=save): pass\n", False),
        ((), "# " + RESUMES, False),
        (("--train-checkpoint=c",), PLAIN, True),
        (("--train-no-resume",), RESUMES, False),
        (("--requeue",), PLAIN, True),
        (("--no-requeue",), RESUMES, False),
        (("--no-requeue", "--requeue"), PLAIN, True),
    ],
)
def test_only_a_run_that_can_resume_is_requeued(
    argv: tuple[str, ...], body: str, resumable: bool
) -> None:
    said = asked(*argv, body=body)
    assert said.request.resumable is resumable
    directives = additions(said, example_plan(resumable=resumable)).directives
    own = [word for word in directives if "requeue" in word]
    if any("requeue" in word for word in argv):
        assert own == []
    else:
        assert own == ["--requeue" if resumable else "--no-requeue"]


def test_who_forbids_a_requeue_is_named() -> None:
    for body, words, why in (
        (RESUMES, ("--train-no-resume",), "by --train-no-resume"),
        (PLAIN, (), "nothing says that it resumes"),
    ):
        added = additions(asked(*words, body=body), example_plan(resumable=False)).each
        assert [one.why for one in added if one.word == "--no-requeue"] == [why]


def test_options_of_every_source_reach_plan_and_planner() -> None:
    said = asked("-G", "2", lines="#SBATCH --mem=5", environ={"SBATCH_GRES": "gpu:1"})
    assert said.request.sbatch_options == ("--mem=5", "--gres=gpu:1", "--gpus=2")
    assert said.sbatch_words == ("-G", "2")


def test_script_args_and_paths() -> None:
    line = split_command_line(["--train-checkpoint", "ck", "train.py", "-N", "9"], FLAGS)
    script = Script(name="train.py", folder=Path("/h"), content=b"#!/bin/sh\n", shown="t")
    found = read_directives(script.text, file="t", train_flags=FLAGS)
    options = read_flags(line.train, found.train)
    request = ask(line, options, script, found, cwd=Path("/work"), environ={}).request
    assert request.script_args == ("-N", "9")
    assert request.checkpoint_dir == "/work/ck"
    assert request.workload == "train"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("train digits", "train-digits"), ("..", "job"), ("a/b;c", "a-b-c"), ("é" * 9, "job")],
)
def test_workload_names_are_fit_for_folders(text: str, expected: str) -> None:
    assert workload_name(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("B:USR1@60", "USR1"),
        ("USR2", "USR2"),
        ("sigusr2@5", "USR2"),
        ("RB:10@60", "USR1"),
        ("B:TERM", "TERM"),
    ],
)
def test_the_users_own_signal(value: str, expected: str) -> None:
    assert asked_signal([Setting(name="signal", value=value)]) == expected


def test_a_signal_that_is_none() -> None:
    with pytest.raises(RequestError, match="names no signal"):
        asked_signal([Setting(name="signal", value="B:NOPE@60")])
    assert asked_signal([]) is None


@pytest.mark.parametrize(
    ("argv", "seconds"), [((), 60), (("--sig", "B:USR1@240"), 240), (("--signal=USR1@99",), 99)]
)
def test_the_job_side_finds_the_warning_time(argv: tuple[str, ...], seconds: float) -> None:
    said, plan = asked(*argv), example_plan()
    assert warning_s(with_options(said, plan, additions(said, plan)).sbatch_options) == seconds


@pytest.mark.parametrize(
    ("checkpoint_s", "limit_s", "lead"),
    [
        (0.5, None, 60),
        (100.0, None, 331),
        (5000.0, None, 600),
        (100.0, 86400.0, 331),
        (100.0, 600.0, 150),
        (0.5, 60.0, 15),
    ],
)
def test_the_lead_leaves_room_for_checkpoints_and_for_training(
    checkpoint_s: float, limit_s: float | None, lead: int
) -> None:
    prediction = dataclasses.replace(example_prediction(), checkpoint_s=checkpoint_s)
    assert lead_s(example_plan(prediction=prediction), limit_s) == lead


def test_a_run_that_cannot_resume_is_not_stopped_before_its_limit() -> None:
    def signals(*argv: str, resumable: str) -> list[str]:
        plan = dataclasses.replace(example_plan(), resumable=resumable == "resumes")
        words = additions(asked("-t", "1", *argv), plan).directives
        return [word for word in words if word.startswith("--signal")]

    assert signals(resumable="resumes") == ["--signal=B:USR1@15"]
    assert signals(resumable="never") == []
    assert signals("--signal=B:USR2@30", resumable="resumes") == []


@pytest.mark.parametrize(
    ("value", "on"), [("", True), ("yes", True), ("1", True), ("0", False), ("no", False)]
)
def test_switches_of_the_environment(value: str, on: bool) -> None:
    assert waits((), {"SBATCH_WAIT": value}) is on
    found = environment_settings({"SBATCH_NO_REQUEUE": value})
    assert bool(found) is on


# Data


def write_hdf5(path: Path, **lengths: int) -> None:
    with h5py.File(path, "w") as file:
        for name, length in lengths.items():
            file[name] = np.zeros((length, 2), dtype="float32")


def test_data_is_measured_and_counted(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "a.h5", x_train=80, y_train=80, x_test=20)
    write_hdf5(tmp_path / "b.h5", x=7, y=7)
    data = asked("--train-data=a.h5", "--train-data", "b.h5", cwd=tmp_path).request.data
    assert data.paths == (str(tmp_path / "a.h5"), str(tmp_path / "b.h5"))
    assert data.samples == 87
    assert data.total_bytes == sum(Path(path).stat().st_size for path in data.paths)


def test_the_file_may_say_how_many_samples_it_holds(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "a.h5", x=80)
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file.attrs["samples"] = 40
    assert asked("--train-data=a.h5", cwd=tmp_path).request.data.samples == 40
    said = asked("--train-data=a.h5", "--train-samples=12", cwd=tmp_path).request
    assert said.data.samples == 12


def test_samples_stay_unknown_where_no_file_tells(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "a.h5", x=80, y=70)
    write_hdf5(tmp_path / "b.h5", x=80, y=70)
    with h5py.File(tmp_path / "b.h5", "a") as file:
        file.attrs["samples"] = "one a line"
    (tmp_path / "c.bin").write_bytes(b"123")
    (tmp_path / "d.h5").mkdir()
    for name in ("a.h5", "b.h5", "c.bin", "d.h5"):
        assert asked(f"--train-data={name}", cwd=tmp_path).request.data.samples is None


def test_a_half_written_file_is_named_where_its_samples_matter(tmp_path: Path) -> None:
    """The number of steps would otherwise be assumed, and the run fail on every node."""
    write_hdf5(tmp_path / "whole.h5", x=80)
    torn = tmp_path / "torn.h5"
    torn.write_bytes((tmp_path / "whole.h5").read_bytes()[:1000])
    with pytest.raises(RequestError, match=r"torn.h5 cannot be read as HDF5: ") as raised:
        asked("--train-data=torn.h5", cwd=tmp_path)
    assert "--train-steps" in raised.value.hint
    assert asked("--train-data=torn.h5", "--train-samples=9", cwd=tmp_path)
    assert asked("--train-data=torn.h5", "--train-steps=9", cwd=tmp_path)


def test_without_h5py_the_extra_is_named_where_samples_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hdf5(tmp_path / "a.h5", x=80)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(MissingExtraError, match="'h5py'") as raised:
        asked("--train-data=a.h5", cwd=tmp_path)
    assert raised.value.hint.endswith("pip install h5py scikit-learn scipy # the extra perf")
    assert asked("--train-data=a.h5", "--train-steps=9", cwd=tmp_path)


def test_what_is_neither_file_nor_folder_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "/dev/zero"):
        with pytest.raises(RequestError, match="is neither a file nor a folder"):
            asked(f"--train-data={name}", "--train-steps=9", cwd=tmp_path)


def test_a_tree_is_measured(tmp_path: Path) -> None:
    for place, size in (("t/a", 10), ("t/b/c", 5)):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_bytes(b"x" * size)
    assert asked("--train-data=t", cwd=tmp_path).request.data.total_bytes == 15


# Scripts


def find(name: str | None, cwd: Path, *, chdir: str | None = None, path: str = "") -> Script:
    return read_script(
        name,
        wrap=None,
        chdir=chdir,
        cwd=cwd,
        environ={"PATH": path},
        stdin=lambda: b"#!/bin/sh",
    )


def test_a_script_is_found_as_sbatch_finds_it(tmp_path: Path) -> None:
    for place in ("here/x.sh", "there/x.sh", "there/y.sh"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(f"#!/bin/sh\n# {place}\n")
    here, there = tmp_path / "here", str(tmp_path / "there")
    assert find("x.sh", here, path=there).folder == here
    assert find("y.sh", here, path=there).folder == Path(there)
    assert find("x.sh", here, chdir=there).folder == Path(there)
    assert find("./x.sh", here, chdir=there).folder == here
    assert find("../there/y.sh", here).folder == Path(there)
    assert find(None, here).name == "sbatch"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"#!/bin/sh\r\necho\r\n", "DOS line breaks"),
        (b"echo\n", "does not look like a batch script"),
        (b"#!/bin/sh\n\0", "NUL byte"),
    ],
)
def test_scripts_that_sbatch_refuses(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.sh").write_bytes(content)
    with pytest.raises(ScriptError, match=message) as raised:
        find("x.sh", tmp_path)
    assert raised.value.exit_code == 1
    assert raised.value.hint


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScriptError, match=r"cannot read the script .*/no\.sh: No such file"):
        find("no.sh", tmp_path)


def test_python_needs_no_shebang(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("from sbtrain_jobs import join\n")
    script = find("x.py", tmp_path)
    assert script.is_python
    assert script.uses_sbtrain


def test_nodes_of_one_gpu_type_are_asked_for_by_its_gres() -> None:
    plan = dataclasses.replace(
        example_plan(), partition="gpu:P100", gpus_per_node=4, gres="gpu:P100:4"
    )
    said = additions(asked(), plan)
    assert "--partition=gpu" in said.directives
    assert "--gres=gpu:P100:4" in said.directives
    mine = additions(asked("-p", "gpu", "--gres=gpu:P100:1"), plan)
    assert not [word for word in mine.words if word.startswith("--partition")]
    assert not [word for word in mine.directives if "gres" in word or "partition" in word]
