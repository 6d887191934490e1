"""`#SBATCH` and `#SBTRAIN` lines are read as sbatch reads them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sbatch_reader import needs_sbatch, sbatch_reads
from sbtrain.options.argv import LONG, last_value
from sbtrain.options.directives import (
    DirectiveError,
    Directives,
    quote_directive,
    read_directives,
)
from sbtrain.options.flag_table import FLAGS
from sbtrain_perf.errors import RequestError


def read(*lines: str) -> Directives:
    text = "\n".join(("#!/bin/bash", *lines)) + "\n"
    return read_directives(text, file="train.sh", train_flags=FLAGS)


def values(directives: Directives) -> dict[str, str | None]:
    return {setting.name: setting.value for setting in directives.settings}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("#SBATCH -N2 --partition=spot", {"nodes": "2", "partition": "spot"}),
        ('#SBATCH --comment="a b" -N 2', {"comment": "a b", "nodes": "2"}),
        ("#SBATCH --comment='a \"b\" c'", {"comment": 'a "b" c'}),
        ('#SBATCH --comment="a\\"b"', {"comment": 'a"b'}),
        ("#SBATCH -N2 # --mem=5", {"nodes": "2"}),
        ("#SBATCH --comment=a#b", {"comment": "a"}),
        ("#SBATCH --comment=a\\#b", {"comment": "a#b"}),
        ("#SBATCH\t-N2", {"nodes": "2"}),
        ("#SBATCH", {}),
        ("#SBATCH--mem=9", {"mem": "9"}),
        ("#SLURM --mem=9", {"mem": "9"}),
        (" #SBATCH --mem=9", {}),
        ("# SBATCH --mem=9", {}),
        ("#sbatch --mem=9", {}),
        ("##SBATCH --mem=9", {}),
    ],
)
def test_one_line(line: str, expected: dict[str, str]) -> None:
    assert values(read(line)) == expected


def test_directives_after_blank_lines_and_comments_count() -> None:
    directives = read("", "   ", "\t# a comment", "#SBATCH -N2")
    assert values(directives) == {"nodes": "2"}
    assert directives.dropped == ()


@pytest.mark.parametrize("command", ["set -euo pipefail", ":", '"""A docstring."""', "  x=1"])
def test_directives_after_a_command_are_dropped_and_reported(command: str) -> None:
    directives = read("#SBATCH -N2", command, "#SBATCH --mem=9", "#SBTRAIN --train-steps=5")
    assert values(directives) == {"nodes": "2"}
    assert directives.train == ()
    places = [one.place for one in directives.dropped]
    assert places == ["train.sh:4", "train.sh:5"]
    assert "line 3 is a command" in directives.dropped[0].message


def test_lines_are_carried_on_as_they_stand() -> None:
    lines = ['#SBATCH   --comment="a b"  # why', "#SBATCH -N2", "#BB_LUA pool=x"]
    assert read(*lines, "# prose", "#SBTRAIN --train-steps=5").kept_lines == tuple(lines)


def test_what_sbtrain_does_itself_is_not_carried_on() -> None:
    directives = read('#SBATCH --wait --comment="a b" -HQ')
    assert directives.kept_lines == ('#SBATCH "--comment=a b" -H',)
    assert "wait" in values(directives)


def test_sbtrain_lines_hold_our_flags() -> None:
    directives = read('#SBTRAIN --train-data "a b.h5" --train-steps=5')
    assert directives.train == (("train-data", "a b.h5"), ("train-steps", "5"))
    assert read("#SBTRAINING is a word").train == ()


@pytest.mark.parametrize(
    ("line", "message", "caret", "exit_code"),
    [
        ("#SBATCH --comment=a b", "Invalid directive found in batch script: b", "b", 255),
        ('#SBATCH --comment="a b', 'unmatched "', '"', 1),
        ("#SBATCH --mem", "requires an argument", "--mem", 255),
        ("#SBATCH -N2 : -N3", "unexpected ':'", ":", 1),
        ("#SBATCH --train-steps=5", "does not know this option", "--train", 255),
        ("#SBTRAIN --train-step=5", "unknown option --train-step", "--train", 2),
        ("#SBTRAIN -N2", "holds --train-... options alone", "-N2", 2),
        ("#SBTRAIN --train-steps", "requires an argument", "--train", 2),
    ],
)
def test_a_wrong_line_is_shown_with_a_caret(
    line: str, message: str, caret: str, exit_code: int
) -> None:
    with pytest.raises(DirectiveError) as raised:
        read("# first", line)
    error = raised.value
    assert error.message.startswith("train.sh:3: ")
    assert message in error.message
    assert error.exit_code == exit_code
    shown, place = error.excerpt.splitlines()
    assert shown.strip() == line
    assert shown[place.index("^") :].startswith(caret)


def test_components_are_refused() -> None:
    with pytest.raises(RequestError, match="heterogeneous"):
        read("#SBATCH -N1", "#SBATCH hetjob", "#SBATCH -N2")


def test_bytes_that_are_no_text() -> None:
    """sbatch takes them as they are."""
    line = b"#SBATCH --comment=\xff".decode(errors="surrogateescape")
    assert values(read(line)) == {"comment": "\udcff"}
    assert read(line).kept_lines == (line,)
    with pytest.raises(DirectiveError, match="not UTF-8"):
        read(b"#SBTRAIN --train-name=\xff".decode(errors="surrogateescape"))
    assert values(read(line.replace("SBATCH", " prose"), "#SBATCH -N2")) == {"nodes": "2"}


def test_a_line_break_cannot_be_quoted() -> None:
    with pytest.raises(RequestError, match="line break"):
        quote_directive("a\nb")


_PIECES = [
    *("a", "b", " ", "\t", "\\", '"', "'", "#", "=", "-", ":", "é"),
    *(" --wckey=5", " --mcs-label=", " --comm=x", " --nope", " -- "),
]


@needs_sbatch
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(pieces=st.lists(st.sampled_from(_PIECES), max_size=10))
def test_sbatch_reads_a_line_the_same(pieces: list[str], tmp_path: Path) -> None:
    line = "#SBATCH --comment=" + "".join(pieces)
    # Versions differ in a blank behind a backslash: 22.05 ends the word there, 24.11 not.
    assume(not re.search(r"\\[ \t]", line))
    # A short option with a value that is no value.
    assume(not re.search(r"""\s["'\\]*-["'\\]*[^-"'\\]""", line))
    (tmp_path / "x.sh").write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    said = sbatch_reads(["x.sh"], cwd=tmp_path)
    try:
        ours = read_directives(f"#!/bin/sh\n{line}\n", file="x", train_flags={}).settings
    except RequestError:
        assert said.refused
        return
    if said.refused:
        assert any(setting.name not in LONG for setting in ours)
        return
    for name in ("comment", "wckey", "mcs-label"):
        assert said.options.get(name) == last_value(ours, name)


@needs_sbatch
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0"), max_size=12))
def test_sbatch_reads_a_quoted_word_back(text: str, tmp_path: Path) -> None:
    word = quote_directive(f"--comment={text}")
    script = tmp_path / "x.sh"
    script.write_bytes(f"#!/bin/sh\n#SBATCH {word}\n".encode())
    said = sbatch_reads(["x.sh"], cwd=tmp_path)
    assert not said.refused
    assert said.options["comment"] == text
    own = read_directives(script.read_bytes().decode(), file="x", train_flags={})
    assert last_value(own.settings, "comment") == text
