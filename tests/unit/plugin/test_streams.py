"""Commands whose standard streams are closed, full, or slow to have anything to say."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from commands import WITHOUT_SLURM, clean_environ
from sbtrain.commands.streams import told_while_slow
from sbtrain_jobs.process import CommandResult, run_command

FULL = "error: cannot write to standard output: No space left on device\n"


def redirected(redirect: str, module: str, *words: str, cwd: Path) -> CommandResult:
    """A command as a shell starts it with such a redirection."""
    environ = clean_environ(SBTRAIN_HOME=str(cwd / "home"))
    environ = {**environ, "PATH": WITHOUT_SLURM}
    return run_command(
        [
            *("/bin/bash", "-c", f'exec "$@" {redirect}', "bash"),
            *(sys.executable, "-m", f"sbtrain.commands.{module}", *words),
        ],
        cwd=cwd,
        env=environ,
        timeout_s=60,
        check="keep",
    )


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("submit", ("--help",)),
        ("submit", ("--version",)),
        ("submit", ("--train-steps=5", "--train-explain", "train.py")),
        ("ctl", ("status",)),
        ("ctl", ("site", "show")),
        ("ctl", ("plan", "--train-steps=5")),
    ],
)
def test_stdout_full_or_closed(module: str, words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("#!/usr/bin/env python3\n")
    said = redirected(">/dev/full", module, *words, cwd=tmp_path)
    assert said.returncode == 1
    assert said.stderr.endswith(FULL)
    assert "Traceback" not in said.stderr
    said = redirected(">&-", module, *words, cwd=tmp_path)
    assert (said.returncode, said.stdout) == (0, "")
    assert "error" not in said.stderr


@pytest.mark.parametrize("redirect", ["2>/dev/full", "2>&-", "0>&- 2>&-"])
def test_stderr_full_or_closed(redirect: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("#!/usr/bin/env python3\n")
    words = ("--train-steps=5", "-N1", "--train-dry-run", "train.py")
    said = redirected(redirect, "submit", *words, cwd=tmp_path)
    assert said.returncode == 0
    assert said.stdout.startswith("#!/bin/bash\n")
    said = redirected(redirect, "submit", "no-such.py", cwd=tmp_path)
    assert (said.returncode, said.stdout) == (1, "")


def test_what_takes_long_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with told_while_slow("asking", first_s=60.0):
        pass
    assert capsys.readouterr().err == ""
    with told_while_slow("asking", first_s=0.05, every_s=60.0):
        time.sleep(0.5)
    assert capsys.readouterr().err == "sbtrain: asking, 0 s so far\n"
