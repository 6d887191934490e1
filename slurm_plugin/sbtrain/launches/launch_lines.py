"""What a script launches by itself: the lines on which it starts processes over its nodes, with
srun, mpirun, torchrun and their like. Read from what its code does: shell by a lexer, Python by
its syntax tree; never from letters in comments, messages or here-documents."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from sbtrain.launches.launchers import Code, Launch, judge
from sbtrain.launches.shell_launches import shell_launches
from sbtrain.options.script import Script

_SHELLS = frozenset({"sh", "bash", "dash", "ksh", "ksh93", "mksh", "zsh", "ash", "csh", "tcsh"})
_MOST_BYTES = 1 << 20  # of a program that is read
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchLine:
    """program ("srun", "accelerate launch", "python3 -m torch.distributed.run") is started by
    the command that begins on line `number`; words: what follows it in that command, without
    redirections."""

    program: str
    number: int
    words: tuple[str, ...]


@lru_cache(maxsize=1)
def launch_lines(script: Script) -> tuple[LaunchLine, ...]:
    """In the order of the script. Never fails: where reading ends, what was found so far."""
    text = script.text
    found = list[LaunchLine]()
    interpreter = _interpreter(text)
    by = judge(interpreter)
    if isinstance(by, Launch):
        found.append(LaunchLine(program=by.program, number=1, words=by.words))
    language = _language(script, interpreter)
    if language == "shell":
        found += _of_shell(text)
    elif language == "python":
        from sbtrain.launches.python_launches import python_launches

        found += [
            LaunchLine(program=one.launch.program, number=one.line, words=one.launch.words)
            for one in python_launches(text, shell=_shell)
        ]
    return tuple(found)


def launched_programs(
    lines: Sequence[LaunchLine], *, folders: Sequence[Path]
) -> Iterator[Script]:
    """The Python programs that these lines name, where they lie below one of the folders."""
    for word in dict.fromkeys(word for line in lines for word in line.words):
        for path in (folder / word for folder in folders):
            if path.suffix == ".py" and path.is_file() and path.stat().st_size <= _MOST_BYTES:
                yield Script(
                    name=path.name, folder=path.parent, content=path.read_bytes(), shown=word
                )
                break


def _of_shell(text: str) -> list[LaunchLine]:
    found = shell_launches(text)
    if not found:
        return []
    breaks = [match.start() for match in re.finditer("\n", text)]
    lines = list[LaunchLine]()
    for one in found:
        number = 1 + bisect_right(breaks, one.at - 1)
        launches = (one.launch,) if isinstance(one.launch, Launch) else _python(one.launch)
        lines += [
            LaunchLine(program=launch.program, number=number, words=launch.words)
            for launch in launches
        ]
    return lines


def _shell(text: str) -> list[Launch]:
    """The launches of a text that a Python script gives a shell."""
    return [one.launch for one in shell_launches(text) if isinstance(one.launch, Launch)]


def _python(code: Code) -> list[Launch]:
    from sbtrain.launches.python_launches import python_launches

    return [one.launch for one in python_launches(code.text or "", shell=_shell)]


def _interpreter(text: str) -> list[str]:
    """The words of the first line behind `#!`."""
    first = text.partition("\n")[0]
    return first[2:].split() if first.startswith("#!") else []


def _language(script: Script, interpreter: list[str]) -> Literal["shell", "python"] | None:
    words = [one for one in interpreter if not one.startswith("-") and "=" not in one]
    for word in words:
        name = word.rpartition("/")[2]
        if name in _SHELLS:
            return "shell"
        if _PYTHON.fullmatch(name):
            return "python"
        if name != "env":
            break
    if script.name.endswith(".py"):
        return "python"
    return None if words else "shell"
