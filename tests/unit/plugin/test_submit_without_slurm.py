"""`sbtrain` where no Slurm exists: help, plans, job scripts, and one line for each mistake."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from commands import WITHOUT_SLURM, clean_environ, sbtrain
from plans import example_plan
from sbatch_reader import CONF_WITHOUT_SLURMCTLD, needs_sbatch
from sbtrain.errors import HomeError
from sbtrain.options.script import Script
from sbtrain.submission.run_files import write_run_folder
from sbtrain_jobs.process import run_command, start_process

SCRIPT = "#!/usr/bin/env python3\nfrom sbtrain_jobs import join\n"
SCRIPT += "run = join()\nrun.steps(start=run.resume(load), save=save)\n"
HEAVY = (
    *("numpy", "h5py", "sklearn", "scipy", "tensorflow", "mpi4py", "pyslurm", "asyncio"),
    *("importlib.metadata", "horovod", "torch"),
)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return clean_environ(PATH=WITHOUT_SLURM, SBTRAIN_HOME=str(tmp_path / "home"))


def imported_by(*argv: str, cwd: Path, environ: dict[str, str]) -> set[str]:
    """Modules that a call has imported at its end, those of a bare Python included."""
    code = (
        "import json, sys\n"
        "from sbtrain.commands.submit import run\n"
        "status = run(sys.argv[1:], __import__('os').environ)\n"
        "sys.stderr.write('\\n' + json.dumps([status, sorted(sys.modules)]))\n"
    )
    result = run_command(
        [sys.executable, "-c", code, *argv], cwd=cwd, env=environ, timeout_s=60
    )
    status, modules = json.loads(result.stderr.splitlines()[-1])
    assert status == 0
    return set(modules)


def test_help_imports_nothing_heavy(place: Path, environ: dict[str, str]) -> None:
    for words in (["--help"], ["-h"], ["--train-steps=5", "--help"], ["--usage"]):
        modules = imported_by(*words, cwd=place, environ=environ)
        assert modules & set(HEAVY) == set()
    assert "argparse" not in modules


def test_help_and_version(place: Path, environ: dict[str, str]) -> None:
    said = sbtrain("--help", cwd=place, environ=environ)
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith("usage: sbtrain [sbatch options]")
    assert len(said.stdout.splitlines()) <= 40
    said = sbtrain("--version", cwd=place, environ=environ)
    assert said.returncode == 0
    assert said.stdout.startswith("sbtrain ")


def test_a_plan_is_explained_from_the_site_file_alone(
    place: Path, environ: dict[str, str]
) -> None:
    words = ("--train-explain", "--train-site=bluewaters", "--train-steps=100", "train.py")
    said = sbtrain(*words, cwd=place, environ=environ)
    assert said.returncode == 0, said.stderr
    assert "cluster bluewaters" in said.stdout
    assert "Chosen: " in said.stdout
    assert not (place / ".sbtrain").exists()


def test_explain_asks_for_no_extra(place: Path, environ: dict[str, str]) -> None:
    words = ("--train-explain", "--train-steps=100", "train.py")
    modules = imported_by(*words, cwd=place, environ=environ)
    assert modules & set(HEAVY) <= {"numpy"}


def test_a_dry_run_prints_the_job_script(place: Path, environ: dict[str, str]) -> None:
    words = ("-N2", "--train-steps=100", "--train-dry-run", "train.py", "--lr", "0.1")
    said = sbtrain(*words, cwd=place, environ=environ)
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("#!/bin/bash\n")
    assert f"exec {sys.executable} -P -m sbtrain.commands.batch " in said.stdout
    assert "#SBATCH --requeue" in said.stdout
    assert "--nodes" not in said.stdout  # the user's own -N2 stays on the command line
    assert not (place / ".sbtrain").exists()


def test_how_a_run_may_be_lost_is_said_at_submission(
    place: Path, environ: dict[str, str]
) -> None:
    """The bundled private site's partition `spot` preempts."""
    words = ("--train-site=private", "-p", "spot", "--train-steps=100", "--train-dry-run")
    for forbids in ("--train-no-resume", "--no-requeue"):
        once = sbtrain(*words, forbids, "train.py", cwd=place, environ=environ)
        assert once.returncode == 0, once.stderr
        assert f"note: spot may preempt, and {forbids} forbids to go on" in once.stderr
        assert "nothing says that the script resumes" not in once.stderr
    plain = place / "plain.py"
    plain.write_text("print()\n")
    once = sbtrain(*words, "plain.py", cwd=place, environ=environ)
    assert "note: spot may preempt, and nothing says that the script resumes" in once.stderr
    again = sbtrain(*words, "--train-resume", "train.py", cwd=place, environ=environ)
    assert "may preempt" not in again.stderr


def test_without_slurm_nothing_is_left_behind(place: Path, environ: dict[str, str]) -> None:
    said = sbtrain("--train-steps=100", "train.py", cwd=place, environ=environ)
    assert said.returncode == 12
    assert said.stdout == ""
    assert "error: cannot run sbatch: No such file or directory" in said.stderr
    assert "hint: " in said.stderr
    assert list((place / ".sbtrain/runs").iterdir()) == []
    assert not (place / "home").exists()


@needs_sbatch
def test_with_slurmctld_away_nothing_is_left_behind(
    place: Path, environ: dict[str, str]
) -> None:
    (place / "slurm.conf").write_text(CONF_WITHOUT_SLURMCTLD)
    away = {"PATH": os.environ["PATH"], "SLURM_CONF": str(place / "slurm.conf")}
    words = ("--train-site=generic", "--train-steps=100", "train.py")
    said = sbtrain(*words, cwd=place, environ={**environ, **away})
    assert (said.returncode, said.stdout) == (14, "")
    assert "error: Slurm does not answer sbatch" in said.stderr
    assert "hint: " in said.stderr
    assert list((place / ".sbtrain/runs").iterdir()) == []
    assert not (place / "home").exists()


@pytest.mark.parametrize(
    ("words", "exit_code", "message"),
    [
        (["--train-steps=5", "no.py"], 1, r"cannot read the script \S*/no.py: No such file"),
        (["--train-data=no.h5", "train.py"], 2, "cannot read"),
        (["--train-site=nowhere", "train.py"], 10, "there is no site named 'nowhere'"),
        (["--train-site=./no.toml", "train.py"], 10, "cannot read the site file"),
        (["--train-layout=ring", "train.py"], 2, "--train-layout does not take 'ring'"),
        (["--train-step=5", "train.py"], 2, "unknown option --train-step"),
        (["--container-image=it", "train.py"], 2, "puts the job script into a container"),
        (["--train-epochs=3", "train.py"], 3, "the number of samples"),
        (["-p", "nope", "train.py"], 2, "has no partition 'nope'"),
        (["--train-steps=5", "--mem"], 255, "option --mem requires an argument"),
        (["--train-steps=5", "-N1", ":", "-N2", "train.py"], 2, "heterogeneous"),
        (["--train-steps=5", "--wrap=ls", "train.py"], 1, "not permitted with --wrap"),
        (["--train-launch=all", "train.py"], 2, "--train-launch does not take 'all'"),
        (["-N", "999999", "train.py"], 3, "999999 nodes at least|999,999 nodes"),
    ],
)
def test_a_mistake_is_one_line_a_hint_and_its_status(
    words: list[str], exit_code: int, message: str, place: Path, environ: dict[str, str]
) -> None:
    said = sbtrain(*words, cwd=place, environ=environ)
    assert said.returncode == exit_code, said.stderr
    assert said.stdout == ""
    happened, hint = said.stderr.splitlines()
    assert happened.startswith("error: ")
    assert re.search(message, happened)
    assert hint.startswith("hint: ")


def test_a_site_file_with_an_unknown_key(place: Path, environ: dict[str, str]) -> None:
    (place / "own.toml").write_text('name = "x"\nspeed = 3\n')
    said = sbtrain("--train-site=./own.toml", "train.py", cwd=place, environ=environ)
    assert said.returncode == 10
    assert "own.toml:2: speed: " in said.stderr


def test_a_wrong_directive_is_shown(place: Path, environ: dict[str, str]) -> None:
    (place / "train.py").write_text("#!/usr/bin/env python3\n#SBATCH --comment=a b\n")
    said = sbtrain("--train-steps=5", "train.py", cwd=place, environ=environ)
    assert said.returncode == 255
    happened, line, caret, hint = said.stderr.splitlines()
    assert happened == "error: train.py:2: Invalid directive found in batch script: b"
    assert line[caret.index("^")] == "b"
    assert hint.startswith("hint: quote")


def test_dropped_directives_are_told_and_may_be_refused(
    place: Path, environ: dict[str, str]
) -> None:
    text = '#!/usr/bin/env python3\n"""Trains."""\n#SBATCH -N2\n#SBTRAIN --train-steps=9\n'
    (place / "train.py").write_text(text)
    words = ["--train-dry-run", "--train-steps=5", "train.py"]
    said = sbtrain(*words, cwd=place, environ=environ)
    assert said.returncode == 0
    assert "warning: train.py:3: ignored by sbatch, because line 2 is a command" in said.stderr
    assert "#SBATCH -N2" not in said.stdout
    said = sbtrain("--train-strict", *words, cwd=place, environ=environ)
    assert said.returncode == 2
    assert "error: --train-strict: warnings are errors" in said.stderr
    assert said.stdout == ""


def test_a_script_from_standard_input(place: Path, environ: dict[str, str]) -> None:
    words = ("--train-dry-run", "--train-steps=5")
    said = sbtrain(*words, cwd=place, environ=environ, stdin="#!/bin/sh\n#SBATCH -t 5\n")
    assert said.returncode == 0, said.stderr
    assert "#SBATCH -t 5\n" in said.stdout
    assert "--job-name" not in said.stdout  # sbatch gets it so, and names it
    said = sbtrain(*words, cwd=place, environ=environ, stdin="")
    assert said.returncode == 1
    assert "the script is empty: standard input" in said.stderr


def test_a_run_folder_of_another_run_is_not_touched(tmp_path: Path) -> None:
    plan = example_plan(run_dir=str(tmp_path / "run"), script=str(tmp_path / "run/script/s"))
    script = Script(name="s", folder=tmp_path, content=b"#!/bin/sh\n", shown="s")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/plan.json").write_text("another's")
    with pytest.raises(HomeError, match="File exists"):
        write_run_folder(plan, script=script, job_text="")
    assert (tmp_path / "run/plan.json").read_text() == "another's"


def test_a_reader_that_goes_away_is_no_crash(place: Path, environ: dict[str, str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = start_process(
        [sys.executable, "-m", "sbtrain.commands.submit", "--train-explain", "train.py"],
        cwd=place,
        env={**environ, "PATH": "/usr/bin:/bin"},
        stdout=writer,
        stderr=subprocess.PIPE,
    )
    os.close(writer)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert b"Traceback" not in err


def test_a_run_folder_that_cannot_be_written(place: Path, environ: dict[str, str]) -> None:
    (place / "file").write_text("")
    environ = {**environ, "SBTRAIN_RUNS": str(place / "file/runs")}
    said = sbtrain("--train-steps=5", "train.py", cwd=place, environ=environ)
    assert said.returncode == 16
    assert "cannot write the run folder" in said.stderr


def test_a_flag_that_lacks_its_value_is_named_before_a_script_is_waited_for(
    place: Path, environ: dict[str, str]
) -> None:
    said = sbtrain("--train-steps", "train.py", cwd=place, environ=environ, stdin="")
    assert said.returncode == 2
    assert "error: --train-steps does not take 'train.py'" in said.stderr


@pytest.mark.parametrize(
    ("package", "hint"),
    [("numpy", " -m pip install numpy\n"), ("h5py", " scipy # the extra perf\n")],
)
def test_a_missing_package_is_named_with_what_brings_it(
    package: str, hint: str, place: Path, environ: dict[str, str]
) -> None:
    (place / "sitecustomize.py").write_text(f"import sys\nsys.modules[{package!r}] = None\n")
    (place / "d.h5").write_bytes((place / "train.py").read_bytes())
    environ = {**environ, "PYTHONPATH": f"{place}:{environ['PYTHONPATH']}"}
    words = ("--train-data=d.h5", "--train-explain", "train.py")
    said = sbtrain(*words, cwd=place, environ=environ)
    assert said.returncode == 6, said.stderr
    assert f"the Python package {package!r}" in said.stderr
    assert said.stderr.endswith(hint)


@pytest.mark.parametrize(
    ("words", "status", "message", "hint"),
    [
        ("--tarin-steps 5 train.py", 2, "unknown option --tarin-steps", "--train-steps?"),
        (
            "--train-steps=5 --site x.toml train.py",
            1,
            "unknown option --site, so that 'x.toml'",
            "--train-site?",
        ),
        (
            "--train-steps=5 --patrition spot train.py",
            1,
            "unknown option --patrition, so that",
            "--partition?",
        ),
        (
            "--train-site=private --mem=900G train.py",
            3,
            "900 GiB a node were",
            "explain",
        ),
        ("--train-site=bluewaters --gres=gpu:80 train.py", 3, "80 GPUs a node were", "explain"),
        ("--train-epochs=2 train.py", 3, "the number of samples", "say --train-samples N"),
    ],
)
def test_what_cannot_be_meant_or_had_is_refused(
    words: str, status: int, message: str, hint: str, place: Path, environ: dict[str, str]
) -> None:
    said = sbtrain(*words.split(), cwd=place, environ=environ)
    assert (said.returncode, said.stdout) == (status, "")
    happened, what_to_do = said.stderr.splitlines()[-2:]
    assert message in happened
    assert hint in what_to_do
    assert not (place / ".sbtrain").exists()


def test_an_invented_number_of_steps_refuses_nothing_and_is_not_shown(
    place: Path, environ: dict[str, str]
) -> None:
    (place / "a.sh").write_text("#!/bin/sh\nsrun hostname\n")
    words = ("--train-dry-run", "--train-name=x", "-t", "1", "a.sh")
    said = sbtrain(*words, cwd=place, environ=environ)
    assert said.returncode == 0, said.stderr
    assert "warning" not in said.stderr
    assert "adds --job-name=a.sh: " in said.stderr
    assert "--time" not in said.stdout
    assert re.findall(r"^#SBATCH (.*)$", said.stdout, re.M) == ["--job-name=a.sh"]
    said = sbtrain("--train-steps=9000", *words, cwd=place, environ=environ)
    assert "planned as if the limit were no limit" in said.stderr


def test_steps_of_a_program_that_counts_its_own_are_assumed_and_said_so(
    place: Path, environ: dict[str, str]
) -> None:
    (place / "plain.py").write_text("print('trains')\n")
    words = ("--train-explain", "-t", "1")
    said = sbtrain(*words, "plain.py", cwd=place, environ=environ)
    assert said.returncode == 0, said.stderr
    assert "1,000 steps assumed (--train-steps tells)" in " ".join(said.stdout.split())
    assert "warning" not in said.stderr
    for other in (("--train-steps=5", "plain.py"), ("train.py",)):  # which joins
        explained = sbtrain(*words, *other, cwd=place, environ=environ).stdout
        assert "assumed (--" not in " ".join(explained.split())


def test_an_empty_comment_is_one(place: Path, environ: dict[str, str]) -> None:
    said = sbtrain("--comment=", "--train-steps=5", "train.py", cwd=place, environ=environ)
    assert said.returncode == 12, said.stderr  # there is no sbatch


@pytest.mark.parametrize("line", ["#SBATCH --comment=a b", "#SBATCH hetjob", "#SBATCH -N"])
def test_what_only_sbatch_can_judge_of_a_script_that_runs_once_is_left_to_it(
    line: str, place: Path, environ: dict[str, str]
) -> None:
    (place / "a.sh").write_text(f"#!/bin/sh\n{line}\n")
    said = sbtrain("--train-steps=5", "a.sh", cwd=place, environ=environ)
    assert said.returncode == 12  # there is no sbatch
    assert "warning: " in said.stderr
    assert ": sbatch gets the call as it is" in said.stderr
    (place / "train.py").write_text(f"#!/usr/bin/env python3\n{line}\n")
    said = sbtrain("--train-steps=5", "train.py", cwd=place, environ=environ)
    assert said.returncode in (2, 255)
    assert "error: " in said.stderr


def test_a_script_that_sbatch_would_refuse_is_left_to_it(
    place: Path, environ: dict[str, str]
) -> None:
    for words in (("nope.sh",), ("-N1",), ("--e=x", "a.sh"), ("-N",)):
        said = sbtrain("--train-launch=script", *words, cwd=place, environ=environ, stdin="")
        assert said.returncode == 12  # there is no sbatch
        assert ": sbatch gets the call as it is" in said.stderr


@pytest.mark.parametrize("shows", ["--train-dry-run", "--train-explain"])
@pytest.mark.parametrize("words", [("--train-launch=none",), ("-N1", ":", "-N1")])
def test_what_only_shows_submits_nothing(
    shows: str, words: tuple[str, ...], place: Path, environ: dict[str, str]
) -> None:
    (place / "a.sh").write_text("#!/bin/sh\n")
    said = sbtrain(shows, *words, "a.sh", cwd=place, environ=environ)
    assert (said.returncode, said.stdout) == (0, ""), said.stderr
    assert "sbatch gets the call as it is" in said.stderr
