"""What is said of a script that will not do what it seems to, and what is not."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from linted_scripts import NOTHING_TO_SAY, TO_SAY
from ordinary_scripts import ORDINARY
from plans import example_plan, example_prediction
from sbatch_reader import needs_sbatch, sbatch_reads
from sbtrain.options.argv import split_command_line
from sbtrain.options.directives import read_directives
from sbtrain.options.flag_table import FLAGS
from sbtrain.options.script import Script
from sbtrain.submission.lint import Surrounding, lint
from sbtrain_perf.request import Plan

HEAD = "#!/bin/bash\n"


def said(
    text: str | bytes,
    *argv: str,
    cwd: Path,
    name: str = "job.sh",
    environ: Mapping[str, str] | None = None,
    slurm: tuple[int, int] | None = (22, 5),
    plan: Plan | None = None,
) -> list[str]:
    content = text if isinstance(text, bytes) else text.encode()
    wrapped = "--wrap" in argv
    words = argv if wrapped else (*argv, name)
    line = split_command_line(words, FLAGS)
    script = Script(name=name, folder=cwd, content=content, shown=name)
    directives = read_directives(script.text, file=name, train_flags=FLAGS)
    settings = (*directives.settings, *line.settings)
    around = Surrounding(cwd=cwd, environ=environ or {}, slurm=slurm)
    return list(lint(script, directives, settings, line, around, plan=plan))


def saving(seconds: float, **changes: object) -> Plan:
    prediction = dataclasses.replace(example_prediction(), checkpoint_s=seconds)
    return example_plan(prediction=prediction, **changes)


@pytest.mark.parametrize(("text", "argv", "expected"), TO_SAY)
def test_what_is_said(
    text: str, argv: tuple[str, ...], expected: list[str], tmp_path: Path
) -> None:
    (tmp_path / "here").mkdir()
    shown = [one if one.startswith("command line") else f"job.sh:{one}" for one in expected]
    assert said(f"{HEAD}{text}\n", *argv, cwd=tmp_path) == shown


@pytest.mark.parametrize(("text", "argv"), NOTHING_TO_SAY)
def test_what_is_not_said(text: str, argv: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    assert said(f"{HEAD}{text}\n", *argv, cwd=tmp_path) == []


@pytest.mark.parametrize("name", ORDINARY)
def test_nothing_is_said_of_an_ordinary_script(name: str, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    assert said(ORDINARY[name], cwd=tmp_path, name=name) == []


@needs_sbatch
@pytest.mark.parametrize("name", ORDINARY)
def test_sbatch_takes_the_ordinary_scripts(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(ORDINARY[name])
    assert not sbatch_reads([f"./{name}"], cwd=tmp_path).refused


@pytest.mark.parametrize("slurm", [None, (21, 8), (23, 11), (24, 11)])
def test_srun_takes_the_cpus_of_its_job_on_other_releases(
    slurm: tuple[int, int] | None, tmp_path: Path
) -> None:
    text = f"{HEAD}#SBATCH -c8\nsrun x\n"
    assert said(text, cwd=tmp_path, slurm=slurm) == []
    assert said(text, cwd=tmp_path, environ={"SRUN_CPUS_PER_TASK": "8"}) == []
    assert len(said(text, cwd=tmp_path, slurm=(23, 2))) == 1


def test_a_save_has_time_before_the_limit(tmp_path: Path) -> None:
    text = f"{HEAD}#SBATCH -t 60 --signal=USR1\nsrun python train.py\n"
    assert said(text, cwd=tmp_path, plan=saving(200)) == [
        "job.sh:2: --signal=USR1 comes 60 s before the limit, and a save is predicted to take "
        "201 s; write --signal=USR1@600"
    ]
    assert said(text, cwd=tmp_path, plan=saving(50)) == []
    assert said(text, cwd=tmp_path, plan=saving(200, resumable=False)) == []
    assert said(text, cwd=tmp_path) == []


def test_bytes_that_sbatch_refuses(tmp_path: Path) -> None:
    dos = b"#!/bin/bash\n#SBATCH -N2\r\ntrue\r\n"
    assert said(dos, cwd=tmp_path)[0] == (
        "job.sh:2: has DOS line breaks, which sbatch refuses; sed -i 's/\\r$//' job.sh"
    )
    marked = b"\xef\xbb\xbf#!/bin/bash\n#SBATCH -N2\ntrue\n"
    assert said(marked, cwd=tmp_path) == [
        "job.sh:1: begins with a byte-order mark, so sbatch sees no #! there; "
        "sed -i '1s/^\\xEF\\xBB\\xBF//' job.sh"
    ]


def test_wrapped_text_holds_no_directives(tmp_path: Path) -> None:
    text = "#!/bin/sh\n# From sbtrain --wrap.\n\n# SBATCH -N2\ntrue\n#SBATCH -N2\n"
    assert said(text, "--wrap", "true", cwd=tmp_path) == []


def test_a_directive_in_a_docstring_is_another_script_s(tmp_path: Path) -> None:
    text = '#!/usr/bin/env python3\n#SBATCH -N2\n"""How:\n\n#SBATCH -N4\n"""\n{}\n'
    assert said(text.format("pass"), cwd=tmp_path, name="train.py") == []
    found = said(text.format("#SBATCH -t 5"), cwd=tmp_path, name="train.py")
    assert [one.partition(": ")[0] for one in found] == ["train.py:7"]


@contextmanager
def as_nobody() -> Iterator[None]:
    """Root may write everywhere."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_log_folder_that_is_closed(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and str(folder).startswith("/tmp/"):
            folder.chmod(0o755)
    with as_nobody():
        found = said(f"{HEAD}#SBATCH -o {closed}/%j.out\n", cwd=Path("/tmp"))
        own = said(f"{HEAD}true\n", cwd=closed)
    assert found == [
        f"job.sh:2: you may not write into the log folder {closed}, without which the job ends "
        "before its first line; give another one by --output"
    ]
    assert len(own) == 1
