"""Log files that Slurm cannot open, for which it would end the job before its first line, and
those that the tasks of an array would take from each other."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_PATTERN = re.compile(r"%(\d*)([%A-Za-z])")
_OF_A_TASK = frozenset("ajJ")  # what differs between the tasks of an array
_EXPANDS = re.compile(r"\$\w|\$\{|^~")


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """What one of -o and -e says. option: its long name; place: where it stands."""

    option: str
    value: str
    place: str


def folder_lint(
    logs: tuple[Log, ...], *, folder: Path, known: Mapping[str, str]
) -> Iterator[str]:
    """Args:
    folder: the job's own, to which names are relative.
    known: what patterns stand for that are known before the job is: `x`, `u`.
    """
    for log in logs:
        said = _log(log, folder, known)
        if said:
            yield f"{log.place}: {said}"


def array_lint(logs: tuple[Log, ...], array: str) -> Iterator[str]:
    if re.fullmatch(r"\d+", array, re.ASCII):  # a single task
        return
    for log in logs:
        marks = {match[2] for match in _patterns(log.value)}
        if not marks & _OF_A_TASK and not log.value.startswith("/dev/"):
            stem, dot, ending = log.value.rpartition(".")
            new = f"{stem}-%a{dot}{ending}" if stem and "/" not in ending else f"{log.value}-%a"
            yield (
                f"{log.place}: the tasks of the array write {log.value} over each other; "
                f"--{log.option}={new} gives each its own"
            )


def _patterns(value: str) -> list[re.Match[str]]:
    """A backslash anywhere takes the patterns their meaning."""
    return [] if "\\" in value else list(_PATTERN.finditer(value))


def _log(log: Log, folder: Path, known: Mapping[str, str]) -> str:
    value = log.value
    if not value or "\n" in value:
        return ""
    for match in reversed(_patterns(value)):
        stands_for = "%" if match[2] == "%" else known.get(match[2])
        if stands_for is not None:
            value = value[: match.start()] + stands_for + value[match.end() :]
    value = value.replace("\\", "")
    marks = [one for one in _patterns(log.value) if one[2] not in (*known, "%")]
    parent, slash, name = value.rpartition("/")
    if slash and not name:
        return _is_folder(log, value)
    if marks and "%" in parent:
        parts = parent.split("/")
        first = next(at for at, part in enumerate(parts) if "%" in part)
        return (
            f"the log folder {'/'.join(parts[: first + 1])} is named by what the job is given "
            f"when it runs, and Slurm makes no folders; put {parts[first]} into the file's name"
        )
    place = folder / (parent or ("/" if slash else "."))
    if not place.is_dir():
        return _missing(log, parent)
    if not _may_write(place):
        return (
            f"you may not write into the log folder {parent or place}, without which the job "
            f"ends before its first line; give another one by --{log.option}"
        )
    return _is_folder(log, value) if "%" not in name and (place / name).is_dir() else ""


def _is_folder(log: Log, value: str) -> str:
    return (
        f"--{log.option}={log.value} is a folder, and the job ends before its first line; "
        f"write --{log.option}={value.rstrip('/')}/slurm-%j.out"
    )


def _missing(log: Log, parent: str) -> str:
    if _EXPANDS.search(log.value):
        return (
            f"--{log.option}={log.value} is taken as written, because sbatch expands neither ~ "
            "nor variables, and there is no such folder; write the path in full, %u for your "
            "name"
        )
    return (
        f"the log folder {parent} is missing, and without it the job ends before its first "
        f"line; mkdir -p {shlex.quote(parent)}"
    )


def _may_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK, effective_ids=True)
