"""The command line is split as sbatch splits it: tables, cases, and sbatch itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sbatch_reader import needs_sbatch, sbatch_reads
from sbtrain.errors import SbatchUsageError
from sbtrain.options.argv import LONG, SHORT, last_value, split_command_line
from sbtrain.options.flag_table import FLAGS
from sbtrain_perf.errors import RequestError

CASES = [
    (["train.py"], [], "train.py", []),
    (["-N", "2", "train.py", "-N", "3"], ["-N", "2"], "train.py", ["-N", "3"]),
    (["-N2", "train.py"], ["-N2"], "train.py", []),
    (["-HN", "2", "s"], ["-HN", "2"], "s", []),
    (["-HN2", "s"], ["-HN2"], "s", []),
    (["--nodes=2", "s"], ["--nodes=2"], "s", []),
    (["--nodes", "2", "s"], ["--nodes", "2"], "s", []),
    (["--part", "a", "s"], ["--part", "a"], "s", []),
    (["--nodes", "--train-data", "s"], ["--nodes", "--train-data"], "s", []),
    (["--exclusive", "s"], ["--exclusive"], "s", []),
    (["--exclusive=user", "s"], ["--exclusive=user"], "s", []),
    (["-k", "s"], ["-k"], "s", []),
    (["-vv", "s"], ["-vv"], "s", []),
    (["-vvp", "spot", "s"], ["-vvp", "spot"], "s", []),
    (["--comment=a b", "s"], ["--comment=a b"], "s", []),
    (["--comment=", "s"], ["--comment="], "s", []),
    (["--", "-odd-name"], [], "-odd-name", []),
    (["-p", "spot", "--", "s", "--", "x"], ["-p", "spot"], "s", ["--", "x"]),
    (["--site-option=7", "s"], ["--site-option=7"], "s", []),
    (["--site-option", "s"], ["--site-option"], "s", []),
    (["--train-steps", "5", "-p", "a", "s"], ["-p", "a"], "s", []),
    (["s", "--train-steps", "5"], [], "s", ["--train-steps", "5"]),
    (["--parsable"], ["--parsable"], None, []),
    ([], [], None, []),
    (["-"], [], "-", []),
    # What sbtrain does in sbatch's place is not passed on.
    (["-W", "s"], [], "s", []),
    (["-HWQ", "s"], ["-H"], "s", []),
    (["-HWN", "2", "s"], ["-HN", "2"], "s", []),
    (["--quiet", "--wait", "s"], [], "s", []),
    (["--quiet=1", "--wait=x", "s"], ["--quiet=1", "--wait=x"], "s", []),
]


@pytest.mark.parametrize(("argv", "words", "script", "args"), CASES)
def test_words_stay_as_they_are_and_in_order(
    argv: list[str], words: list[str], script: str | None, args: list[str]
) -> None:
    line = split_command_line(argv, FLAGS)
    assert list(line.sbatch_words) == words
    assert line.script == script
    assert list(line.script_args) == args


def test_the_last_value_counts() -> None:
    line = split_command_line(["-N2", "--nodes=3", "-N", "4", "s"], FLAGS)
    assert last_value(line.settings, "nodes") == "4"
    assert last_value(line.settings, "partition") is None


def test_our_flags_are_taken_out_wherever_they_stand() -> None:
    argv = ["-p", "spot", "--train-steps=5", "-N", "2", "--train-data", "a b", "s"]
    line = split_command_line(argv, FLAGS)
    assert line.sbatch_words == ("-p", "spot", "-N", "2")
    assert line.train == (("train-steps", "5"), ("train-data", "a b"))


def test_our_flags_are_not_abbreviated() -> None:
    with pytest.raises(RequestError, match="unknown option --train-step") as raised:
        split_command_line(["--train-step", "5", "s"], FLAGS)
    assert "--train-steps" in raised.value.hint


def test_a_switch_of_ours_takes_no_value() -> None:
    with pytest.raises(RequestError, match="takes no value"):
        split_command_line(["--train-explain=yes", "s"], FLAGS)


@pytest.mark.parametrize("argv", [["--mem"], ["-N"], ["-HN"], ["--part"], ["--wrap"]])
def test_a_missing_value_ends_as_in_sbatch(argv: list[str]) -> None:
    with pytest.raises(SbatchUsageError, match="requires an argument") as raised:
        split_command_line(argv, FLAGS)
    assert raised.value.exit_code == 255


def test_an_abbreviation_must_stand_for_one_option() -> None:
    with pytest.raises(SbatchUsageError, match=r"ambiguous.*--nodelist"):
        split_command_line(["--node", "2", "s"], FLAGS)


def test_wrap_stands_for_the_script() -> None:
    line = split_command_line(["--wrap", "python train.py", "-N2"], FLAGS)
    assert (line.wrap, line.script, line.sbatch_words) == ("python train.py", None, ("-N2",))
    with pytest.raises(RequestError, match="not permitted with --wrap"):
        split_command_line(["--wrap=ls", "train.py"], FLAGS)


def test_several_components_are_one_call() -> None:
    line = split_command_line(
        ["-N1", "--train-steps=3", ":", "-N2", "-Q", "--", "train.py", ":", "a"], FLAGS
    )
    assert (line.components, line.script, line.script_args) == (2, "train.py", (":", "a"))
    assert line.train == (("train-steps", "3"),)
    assert line.without_ours == ("-N1", ":", "-N2", "-Q", "--", "train.py", ":", "a")
    assert line.sbatch_words == ("-N1",)


def test_the_table_has_no_option_twice() -> None:
    assert set(SHORT.values()) <= set(LONG)
    assert len(set(SHORT.values())) == len(SHORT)


# The same words to sbatch: what it reads of them is what we read.
_COMPARED = ("comment", "nodes", "wckey", "job-name", "hold", "mcs-label", "partition")
_TOKENS = [
    *("-N3", "--nodes=2", "-H", "--hold", "-HN4", "-vHJ", "-J", "x", "-Jy", "-HJ", "-vC"),
    *("--job=z", "--job-n", "--comment=a b", "--comment", "--com=1", "--comm", "2", "a b"),
    *("--wckey=w", "--wck", "--exclusive", "--exclusive=user", "--exc", "-k", "-O", "-s"),
    *("-px", "-p", "--par=x", "--part=x", "--mcs", "--mcs-label=", "--", "-", "--nope"),
]


@needs_sbatch
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(argv=st.lists(st.sampled_from(_TOKENS), max_size=5))
def test_sbatch_reads_the_same(argv: list[str], tmp_path: Path) -> None:
    argv = [*argv, "end.sh"]
    empty, full = tmp_path / "empty", tmp_path / "full"
    for folder in (empty, full):
        folder.mkdir(exist_ok=True)
    try:
        line = split_command_line(argv, {})
        script, ours = line.script, line.settings
    except SbatchUsageError:
        assert sbatch_reads(argv, cwd=empty).refused
        return
    said = sbatch_reads(argv, cwd=empty)
    if said.refused:
        assert any(s.name not in LONG for s in ours)  # passed on as it is
        return
    assert said.missing == script
    if script is None:
        return
    (full / script).write_text("#!/bin/sh\n")
    understood = sbatch_reads(argv, cwd=full)
    read = understood.options
    if understood.refused:  # since 23.11, where options exclude each other
        return
    for name in _COMPARED:
        if name == "hold":
            assert ("hold" in read) == any(s.name == "hold" for s in ours)
        else:
            assert read.get(name) == last_value(ours, name)
    (full / script).unlink()


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("--train-step", "did you mean --train-steps?"),
        ("--train-ndoes=2", "did you mean --train-nodes?"),
        ("--train-bogus", "sbtrain --help lists them"),
    ],
)
def test_an_unknown_flag_of_ours_is_compared_without_the_common_prefix(
    word: str, hint: str
) -> None:
    with pytest.raises(RequestError, match="unknown option --train-") as raised:
        split_command_line([word, "end.sh"], FLAGS)
    assert raised.value.hint == hint
