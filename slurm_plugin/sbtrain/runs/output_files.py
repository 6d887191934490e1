"""Where the output of a run is: the job's own files, and each rank's log of each attempt."""

from __future__ import annotations

import getpass
import glob
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sbtrain.runs.run_list import ListedRun
from sbtrain_jobs.layouts.ranks import role_name
from sbtrain_jobs.record.ledger import AttemptRecord
from sbtrain_perf.errors import RequestError
from sbtrain_perf.request import Plan

_ANY = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """what: output, errors, or a rank's name, such as worker-1. attempt: None for the job's
    files, which are of all its attempts."""

    what: str
    path: Path
    attempt: int | None = None


def job_files(
    run: ListedRun, plan: Plan, attempts: Sequence[AttemptRecord]
) -> tuple[OutputFile, ...]:
    """The job's output, and its errors where they go elsewhere: as each attempt found them;
    before the first one, as sbatch's options name them."""
    found = dict[Path, str]()
    for one in attempts:
        for what, path in (("output", one.output), ("errors", one.errors)):
            if path:
                found.setdefault(Path(path), what)
    if not found:
        found = {path: what for what, path in _expected(run, plan)}
    return tuple(OutputFile(what=what, path=path) for path, what in found.items())


def rank_files(
    run: ListedRun, plan: Plan, attempts: Sequence[AttemptRecord]
) -> tuple[OutputFile, ...]:
    """Logs of ranks that are there, attempt by attempt; none where the script starts them."""
    found = list[OutputFile]()
    for one in attempts:
        folder = run.folder.attempt(one.attempt)
        for role in plan.roles if plan.launch == "ranks" else ():
            name = role_name(role)
            for path in (folder.trainer_log(name), folder.trainer_errors(name)):
                if path.is_file():
                    found.append(OutputFile(what=name, path=path, attempt=one.attempt))
    return tuple(found)


def named_rank(text: str, plan: Plan) -> str:
    """The name of a rank that is given by its name or its number.

    Raises:
        RequestError: there is no such rank with a log of its own.
    """
    if plan.launch == "script":
        raise RequestError(
            "the script starts its ranks itself: all that they write is in the job's output",
            hint="leave the rank out",
        )
    names = [role_name(role) for role in plan.roles]
    if text in names:
        return text
    if text.isdecimal() and int(text) < len(names):
        return names[int(text)]
    raise RequestError(
        f"the run has no rank {text!r}",
        hint=f"it has {len(names)}, from 0 ({names[0]}) to {len(names) - 1} ({names[-1]})",
    )


def _expected(run: ListedRun, plan: Plan) -> Iterator[tuple[str, Path]]:
    """By the options; what is not known before the job runs may stand for anything, and then
    the newest file that fits is meant."""
    base, _, task = run.job_id.partition("_")
    default = "slurm-%A_%a.out" if task else "slurm-%j.out"
    known = {
        "%": "%",
        "A": base,
        "a": task or "4294967294",
        "u": getpass.getuser(),
        "x": _option(plan, "job-name") or Path(plan.script).name,
        **({} if task else {"j": base, "J": base}),
    }
    for what, option in (("output", "output"), ("errors", "error")):
        value = _option(plan, option) or (default if what == "output" else "")
        if value and (run.submit_dir or value.startswith("/")):
            yield what, _newest(Path(run.submit_dir), _parts(value, known))


def _newest(folder: Path, parts: Sequence[str]) -> Path:
    """The file of these parts; of several that fit the one written last."""
    form = "".join(part if part == _ANY else glob.escape(part) for part in parts)
    name = "".join(parts)
    if _ANY not in parts:
        return folder / name
    there = glob.glob(str(Path(glob.escape(str(folder))) / form))  # noqa: PTH207
    return Path(max(there, key=os.path.getmtime)) if there else folder / name


def _parts(value: str, known: Mapping[str, str]) -> list[str]:
    """What a file's name is made of, _ANY for what is not known. A backslash anywhere takes
    the patterns their meaning."""
    if "\\" in value:
        return [value.replace("\\", "")]
    parts = re.split(r"(%\d*[%A-Za-z])", value)
    return [_stands_for(part, known) if place % 2 else part for place, part in enumerate(parts)]


def _stands_for(pattern: str, known: Mapping[str, str]) -> str:
    text = known.get(pattern[-1], _ANY)
    width = pattern[1:-1]
    return text.zfill(int(width)) if width and text.isdecimal() else text


def _option(plan: Plan, name: str) -> str:
    start = f"--{name}="
    said = [word for word in plan.sbatch_options if word.startswith(start)]
    return said[-1].removeprefix(start) if said else ""
