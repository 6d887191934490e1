"""What sbatch is told of a script that starts its ranks itself: no more than the plan needs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from plans import example_plan
from sbtrain.options.argv import split_command_line
from sbtrain.options.directives import read_directives
from sbtrain.options.flag_table import FLAGS
from sbtrain.options.flags import read_flags
from sbtrain.options.script import Script
from sbtrain.submission.additions import additions, with_options
from sbtrain.submission.asked import Asked, ask
from sbtrain_perf.request import NodeRange

CHOSEN = {"--partition=spot", "--nodes=2", "--exclusive"}


SCRIPT = Script(
    name="a.sh", folder=Path("/home"), content=b"#!/bin/sh\nsrun hostname\n", shown="a.sh"
)


def asked(words: str, script: Script = SCRIPT) -> Asked:
    line = split_command_line([*words.split(), "a.sh"], FLAGS)
    return ask(
        line,
        read_flags(line.train, ()),
        script,
        read_directives(script.text, file="a.sh", train_flags=FLAGS),
        cwd=Path("/home"),
        environ={},
        launch="script",
    )


def added(words: str, **changes: object) -> set[str]:
    return {one.word for one in additions(asked(words), example_plan(**changes)).each}


def test_what_the_user_left_open_stays_as_sbatch_has_it() -> None:
    assert added("--train-name=x", resumable=False) == {"--job-name=a.sh"}
    assert asked("--train-name=x").request.nodes == NodeRange(low=1, high=1)
    assert added("--train-name=x -N 2-4 -n8 -p a,b", resumable=False) == {"--job-name=a.sh"}
    assert added("--requeue --train-name=x", resumable=False) == {"--job-name=a.sh"}


@pytest.mark.parametrize(
    "word", ["--train-nodes=1-4", "--train-objective=time", "--train-steps=9"]
)
def test_a_word_of_planning_opens_the_choice(word: str) -> None:
    assert added(word, resumable=False) == CHOSEN | {"--job-name=a.sh"}
    mine = added(f"{word} -p spot -N2 -c 2 -J a", resumable=False)
    assert mine == set()
    assert added(f"{word} -n8", resumable=False) == CHOSEN - {"--nodes=2"} | {"--job-name=a.sh"}


def test_a_run_that_resumes_is_told_to_stop_and_comes_back() -> None:
    words = added("--train-name=x", resumable=True)
    assert words - {"--requeue", "--open-mode=append", "--job-name=a.sh"} == {
        "--signal=B:USR1@60"
    }


@pytest.mark.parametrize("theirs", ["", "--requeue"])
def test_a_run_that_may_not_resume_is_never_requeued(theirs: str) -> None:
    """Where nobody says so, a cluster may requeue every job."""
    script = Script(
        name="a.sh",
        folder=Path("/home"),
        content=f"#!/bin/sh\n#SBATCH -J a {theirs}\nsrun hostname\n".encode(),
        shown="a.sh",
    )
    found = additions(asked("--train-no-resume", script), example_plan(resumable=False)).each
    assert [one.word for one in found] == ["--no-requeue"]
    assert found[0].narrows == bool(theirs)


def test_the_plan_says_whether_a_script_may_be_watched() -> None:
    for flag, watched in (("--train-name=x", True), ("--train-no-hooks", False)):
        said, plan = asked(flag), example_plan()
        assert with_options(said, plan, additions(said, plan)).hooks == watched


@pytest.mark.parametrize("words", ["-v -Q", "-Qv", "--quiet --verbose"])
def test_what_sbatch_refuses_together_reaches_it(words: str) -> None:
    assert "--quiet" in added(f"--train-name=x {words}", resumable=False)
    assert "--quiet" not in added("--train-name=x -Q", resumable=False)


def test_every_addition_has_its_reason() -> None:
    plan = example_plan(gpus_per_node=2)
    assert all(one.why for one in additions(asked("--train-steps=9"), plan).each)


@pytest.mark.parametrize(
    "line", ["#PBS -N other", "#PBS -l nodes=1 -N other", "#BSUB -J other"]
)
def test_a_name_in_lines_of_another_scheduler_counts(line: str) -> None:
    found = read_directives(f"#!/bin/sh\n{line}\nls\n", file="a.sh", train_flags=FLAGS)
    assert found.kept_lines == (line,)
    said = dataclasses.replace(asked("--train-name=x"), directives=found)
    assert additions(said, example_plan(resumable=False)).each == ()


def test_of_a_partition_that_gives_no_whole_node_none_is_asked_for() -> None:
    ranks = dataclasses.replace(
        asked("--train-steps=9"),
        request=dataclasses.replace(asked("--train-steps=9").request, launch="ranks"),
    )
    plan = example_plan(whole_nodes=False, cores_per_node=3)
    words = {one.word for one in additions(ranks, plan).each}
    assert "--exclusive" not in words
    assert "--cpus-per-task=3" in words
    assert not {"--exclusive", "--cpus-per-task=3"} & added(
        "--train-steps=9", whole_nodes=False
    )
