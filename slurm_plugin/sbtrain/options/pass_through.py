"""Which calls are sbatch's alone: those in which nothing asks for training. They reach it as
they stand, so that `sbtrain` may stand for `sbatch` everywhere.

Training is asked for by a `--train-*` option, by a `#SBTRAIN` line, by a Python script that
imports the training API, and by a Python program without a `#!` line: sbatch takes none of
these. Nothing is imported here that takes time.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sbtrain.errors import SbatchUsageError, ScriptError
from sbtrain.options.argv import (
    TRAIN_PREFIX,
    CommandLine,
    Setting,
    given,
    last_value,
    split_command_line,
)
from sbtrain.options.flag_table import FLAGS
from sbtrain.options.script import Script, read_script

_BLANKS = b" \t\n\v\f\r"
_MOST_BYTES = 64 << 20  # of standard input; sbatch takes 4 MiB


def for_sbatch(argv: Sequence[str], environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """sbatch's words where the call is its alone, else None. What sbatch will refuse is left
    for it to say. Standard input that was read can be read again afterwards.

    Raises:
        RequestError: a word is one of ours written wrong.
    """
    try:
        line = split_command_line(argv, FLAGS)
    except (SbatchUsageError, ScriptError):
        asked = any(word.startswith(TRAIN_PREFIX) for word in argv)
        return None if asked else tuple(argv)
    if line.shows_only:
        return None
    launch = [value for name, value in line.train if name == "train-launch"]
    if (launch and launch[-1] == "none") or shows_gres(line.settings):
        return line.without_ours
    if line.train:
        return None
    if not given(line.settings, "help", "usage", "version") and _asks(line, environ):
        return None
    return tuple(argv)


def of_script_that_runs_once(argv: Sequence[str]) -> tuple[str, ...]:
    """The words without ours, of a call that --train-launch=script says is of such a script,
    and that could not be split; none of any other."""
    kept, launch, words = list[str](), "", iter(argv)
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith(TRAIN_PREFIX) or name not in FLAGS:
            kept.append(word)
        elif FLAGS[name] and not equals:
            value = next(words, "")
        launch = value if name == "train-launch" else launch
    return tuple(kept) if launch == "script" else ()


def shows_gres(settings: Sequence[Setting]) -> bool:
    """`--gres=help`: sbatch lists what there is, and ends."""
    return any(one.name == "gres" and one.value == "help" for one in settings)


def _asks(line: CommandLine, environ: Mapping[str, str]) -> bool:
    if line.wrap is not None:
        return False
    try:
        keep(line.script)
        script = read_script(
            line.script,
            wrap=None,
            chdir=last_value(line.settings, "chdir"),
            cwd=Path.cwd(),
            environ=environ,
            stdin=lambda: kept(0),
        )
    except (ScriptError, OSError):
        return False
    return _has_our_lines(script) or (
        script.is_python and (not script.content.startswith(b"#!") or script.uses_sbtrain)
    )


def _has_our_lines(script: Script) -> bool:
    """Where directives are read, that is, before the first command."""
    if b"#SBTRAIN" not in script.content:
        return False
    commands = 0
    for number, line in enumerate(script.content.split(b"\n"), start=1):
        if line.startswith(b"#SBTRAIN") and not line[8:9].strip(_BLANKS):
            if not commands:
                return True
            sys.stderr.write(
                f"sbtrain: warning: {script.shown}:{number}: ignored, because line {commands} "
                "is a command: sbatch gets the script as it is\n"
            )
            return False
        stripped = line.lstrip(_BLANKS)
        if stripped and not stripped.startswith(b"#"):
            commands = commands or number
    return False


def keep(name: str | None) -> None:
    """A script that is a pipe, as `<(...)` of a shell, can be read once: the file of that
    number becomes one that can be read again.

    Raises:
        ScriptError: it is no file, and nobody but sbatch reads it.
    """
    if name is None:
        return
    name = "/dev/fd/0" if name == "/dev/stdin" else name
    folder, _, number = name.rpartition("/")
    if folder in ("/dev/fd", "/proc/self/fd") and number.isdecimal():
        if not stat.S_ISREG(os.fstat(int(number)).st_mode):
            kept(int(number))
    elif os.path.exists(name) and not os.path.isfile(name):  # noqa: PTH110, PTH113
        raise ScriptError("it can perhaps be read once", hint="sbatch reads it")


def kept(descriptor: int) -> bytes:
    """What is to be read there, of which nothing is lost for whoever reads it next."""
    pieces = list[bytes]()
    begin = None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        begin = os.lseek(descriptor, 0, os.SEEK_CUR)
    size = 0
    while size <= _MOST_BYTES and (piece := os.read(descriptor, 1 << 20)):
        pieces.append(piece)
        size += len(piece)
    content = b"".join(pieces)
    if begin is not None:
        os.lseek(descriptor, begin, os.SEEK_SET)
        return content
    again = os.memfd_create("script")
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(again, left) :]
        os.lseek(again, 0, os.SEEK_SET)
        os.dup2(again, descriptor)
    finally:
        os.close(again)
    return content
