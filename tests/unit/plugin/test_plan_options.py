"""`sbtrainctl plan`: its own options anywhere before the script, and no word ignored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sbtrain.commands.ctl import run

SITE = """\
name = "small"
shared_gb_s = 2
shared_client_gb_s = 0.5
[partitions.free]
nodes = 4
cores_per_node = 16
memory_gib_per_node = 16
"""
SCRIPT = "#!/bin/sh\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.toml").write_text(SITE)
    (tmp_path / "train.sh").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plan(*words: str, place: Path) -> int:
    return run(["plan", *words], {"SBTRAIN_HOME": str(place / "home"), "PATH": "/nowhere"})


SITES = (("--site=./small.toml",), ("--site", "./small.toml"), ("--train-site=./small.toml",))


@pytest.mark.parametrize("site", SITES, ids=["equals", "word", "ours"])
@pytest.mark.parametrize("order", range(4))
def test_options_of_its_own_stand_anywhere_before_the_script(
    site: tuple[str, ...], order: int, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps, size = ("--train-steps", "100"), ("-N", "2")
    words = (
        (*site, "--json", *steps, *size),
        (*steps, *site, *size, "--json"),
        (*steps, "--json", *size, *site),
        (*size, *steps, *site, "--json", "train.sh", "--lr", "0.1"),
    )[order]
    assert plan(*words, place=place) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["cluster"], said["chosen"]["nodes"]) == ("small", 2)


def test_the_last_site_counts(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--site=generic", "--train-steps=9", "--train-site", "private", "--json")
    assert plan(*words, "--site", "small.toml", place=place) == 0
    assert json.loads(capsys.readouterr().out)["cluster"] == "small"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["--train-steps=9", "--site"], "option --site requires an arg", "write --site=VALUE"),
        (["--json=1", "--train-steps=9"], "option --json takes no value", "--json alone"),
        (["--train-steps=9", "--json=1"], "option --json takes no value", "--json alone"),
        (["--train-steps=9", "--jsn"], "unknown option --jsn", "did you mean --json?"),
        (["--sit=small.toml"], "unknown option --sit", "did you mean --site?"),
        (["--tarin-steps", "5"], "unknown option --tarin-steps", "mean --train-steps?"),
        (["--train_steps=5"], "unknown option --train_steps", "mean --train-steps?"),
        (
            ["--partitoin", "lang"],
            "unknown option --partitoin, so that 'lang' is taken for the script",
            "did you mean --partition?",
        ),
        (["--zzzz", "lang"], "unknown option --zzzz, so that 'lang'", "written behind '='"),
        (["--train-epochs=3"], "epochs are asked for, but the number", "--train-samples N"),
    ],
)
def test_a_wrong_word_is_named(
    words: list[str], message: str, hint: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan(*words, place=place) != 0
    happened, what_to_do = capsys.readouterr().err.splitlines()
    assert happened.startswith(f"error: {message}")
    assert hint in what_to_do


def test_options_behind_the_script_are_the_scripts(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--site=small.toml", "--train-steps=9", "train.sh", "--json", "--site=x")
    assert plan(*words, place=place) == 0
    said = capsys.readouterr()
    assert said.out.startswith("cluster small")
    for name in ("--json", "--site"):
        assert f"{name} stands behind the script, so the script gets it" in said.err


def test_an_unknown_option_of_sbatch_is_told_of(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--site=small.toml", "--train-steps=9", "--partitoin=free")
    assert plan(*words, place=place) == 0
    said = capsys.readouterr().err
    assert "note: unknown option --partitoin: sbatch gets it as it is" in said
    assert "did you mean --partition?" in said


def test_strict_makes_an_error_of_a_warning(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--site=small.toml", "--train-steps=999999", "-t", "1")
    assert plan(*words, place=place) == 0
    assert plan(*words, "--train-strict", place=place) == 2
    assert "--train-strict: warnings are errors" in capsys.readouterr().err


def test_no_job_script_is_printed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan("--site=small.toml", "--train-steps=9", "--train-dry-run", place=place) == 0
    assert "no job script is printed here" in capsys.readouterr().err


def test_the_version(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plan("--version", place=place) == 0
    assert capsys.readouterr().out.startswith("sbtrain ")
