"""Commands whose standard streams are closed, full, or slow to have anything to say."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path

import pytest

from commands import WITHOUT_SLURM, clean_environ
from sbtrain.commands.ctl import run
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
    said = redirected(redirect, "submit", "--train-steps=5", "no-such.py", cwd=tmp_path)
    assert (said.returncode, said.stdout) == (1, "")


def test_what_takes_long_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with told_while_slow("asking", first_s=60.0):
        pass
    assert capsys.readouterr().err == ""
    said = ""
    with told_while_slow("asking", first_s=0.05, every_s=60.0):
        end_s = time.monotonic() + 30
        while not said and time.monotonic() < end_s:
            time.sleep(0.05)
            said = capsys.readouterr().err
    assert re.fullmatch(r"sbtrain: asking, \d+ s so far\n", said)


def on_a_terminal(module: str, *words: str, columns: int, cwd: Path) -> list[str]:
    """The lines of a command whose stdout is a terminal of that many columns, without the
    colours that argparse has from Python 3.14 on."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = clean_environ(SBTRAIN_HOME=str(cwd / "home"), PATH=WITHOUT_SLURM, NO_COLOR="1")
    process = subprocess.Popen(
        [sys.executable, "-m", f"sbtrain.commands.{module}", *words],
        cwd=cwd,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    said = b""
    try:
        while part := os.read(ours, 1 << 16):
            said += part
    except OSError:  # EIO: the other end is closed
        pass
    os.close(ours)
    assert process.wait(60) == 0
    return said.decode().splitlines()


def test_text_is_as_wide_as_the_terminal(tmp_path: Path) -> None:
    for words in (("submit", "--help"), ("ctl", "stage", "run", "--help")):
        for columns, least in ((60, 50), (84, 76)):
            lines = on_a_terminal(*words, columns=columns, cwd=tmp_path)
            assert least <= max(map(len, lines)) <= columns


@pytest.mark.parametrize("columns", ["60", "200", ""])
@pytest.mark.parametrize(
    "words",
    [
        *(("--help",), ("plan", "--help"), ("status", "--help"), ("cluster", "up", "--help")),
        *(("stage", "run", "--help"), ("site", "burst-buffer", "--help")),
        *(("site", "show", "private"), ("plan", "--site=private", "--train-steps=5000")),
    ],
    ids=" ".join,
)
def test_text_fits_the_columns_of_the_environment_and_100_without(
    words: tuple[str, ...],
    columns: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with suppress(SystemExit):  # argparse, after it printed help
        run(words, {"SBTRAIN_HOME": str(tmp_path)})
    lines = capsys.readouterr().out.splitlines()
    widest = max(lines, key=len)
    assert len(lines) > 3
    assert len(widest) <= int(columns or 100), widest
