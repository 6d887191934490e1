"""`sbtrainctl logs`: what a run's job wrote, or one of its ranks; followed to the run's end."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain.commands.entry import INTERRUPTED
from sbtrain.commands.listed_runs import listed_runs
from sbtrain.commands.streams import write_bytes
from sbtrain.runs.named_run import HELP, METAVAR, array_tasks, named_run, plan_of
from sbtrain.runs.output_files import OutputFile, job_files, named_rank, rank_files
from sbtrain.runs.run_status import RunStatus, overview
from sbtrain.runs.standing import recorded_end
from sbtrain.slurm.command_client import CommandsClient
from sbtrain_jobs.record.ledger import AttemptRecord, attempts, read_ledger
from sbtrain_perf.errors import RequestError

if TYPE_CHECKING:
    from sbtrain.commands.arguments import Subparsers
    from sbtrain.runs.run_list import ListedRun
    from sbtrain.slurm.client import SlurmClient
    from sbtrain_perf.request import Plan

_LOOK_EVERY_S = 0.5
_ASK_EVERY_S = 30.0  # Slurm, where the ledger holds no end
_CHUNK = 1 << 20
NONE_THERE = 1


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "logs",
        description="Prints the output of a run's job, and its errors where they are in a file "
        "of their own; or the log of one rank, of its newest attempt that has one. "
        "docs/run-folder.md of sbtrain's source says what goes where.",
    )
    parser.add_argument("run", nargs="?", default="last", metavar=METAVAR, help=HELP)
    parser.add_argument(
        "rank", nargs="?", metavar="RANK", help="a rank's number, or its name, as worker-1"
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="go on until the run has ended"
    )
    parser.add_argument("--json", action="store_true", help="list the files as JSON")


def run(args: argparse.Namespace) -> int:
    """1 where nothing is there. Raises HomeError, RequestError, PlanError, LaunchError."""
    one = named_run(args.run, listed_runs(os.environ).runs)
    plan = plan_of(one)
    if one.folder.task_of() is None and array_tasks(plan):
        raise RequestError(
            f"job {one.job_id} is an array, whose tasks have outputs of their own",
            hint=f"name a task, as {one.job_id}_{array_tasks(plan)[0]}",
        )
    rank = None if args.rank is None else named_rank(args.rank, plan)
    source = Source(run=one, plan=plan, rank=rank)
    if args.json:
        return _print_json(source)
    client = CommandsClient(query_timeout_s=30.0)
    try:
        return follow(source, client) if args.follow else _show(source, client)
    except KeyboardInterrupt:
        return INTERRUPTED  # that is how one leaves it


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Whose files are meant: the job's, or those of one rank."""

    run: ListedRun
    plan: Plan
    rank: str | None

    def attempts(self) -> tuple[AttemptRecord, ...]:
        return attempts(read_ledger(self.run.folder.ledger))

    def files(self) -> tuple[OutputFile, ...]:
        """Of the job all, of a rank those of the newest attempt that has any."""
        records = self.attempts()
        if self.rank is None:
            return job_files(self.run, self.plan, records)
        every = rank_files(self.run, self.plan, records)
        found = [one for one in every if one.what == self.rank]
        return tuple(one for one in found if one.attempt == found[-1].attempt)

    def status(self, client: SlurmClient) -> RunStatus:
        return overview([self.run], client).runs[0]


@dataclass(slots=True, kw_only=True)
class _Printer:
    """Prints what is new in files, each under its name where there are several."""

    shown: dict[Path, int] = field(default_factory=dict)  # bytes
    heading: Path | None = None

    def print(self, files: Sequence[OutputFile]) -> None:
        for one in files:
            for chunk in self._new(one.path):
                if len({*self.shown, *(each.path for each in files)}) > 1:
                    self._head(one.path)
                write_bytes(chunk)

    def _head(self, path: Path) -> None:
        if path != self.heading:
            between = "" if self.heading is None else "\n"
            write_bytes(f"{between}==> {path} <==\n".encode(errors="surrogateescape"))
            self.heading = path

    def _new(self, path: Path) -> Iterator[bytes]:
        try:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                at = self.shown.get(path, 0)
                file.seek(at if at <= size else 0)  # an attempt may begin the file anew
                while file.tell() < size and (chunk := file.read(_CHUNK)):
                    self.shown[path] = file.tell()
                    yield chunk
        except FileNotFoundError:
            pass
        except OSError as error:
            raise RequestError(
                f"cannot read {path}: {error.strerror}", hint="is it yours, and a file?"
            ) from error


def _show(source: Source, client: SlurmClient) -> int:
    files = [one for one in source.files() if one.path.is_file()]
    if not files:
        sys.stderr.write(f"sbtrainctl: {_why_none(source, source.status(client))}\n")
        return NONE_THERE
    _Printer().print(files)
    return 0


def follow(
    source: Source, client: SlurmClient, *, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Print what comes until the run has ended, over all of its attempts."""
    printer = _Printer()
    left_s, over, told = 0.0, False, False
    while True:
        if left_s <= 0:
            status, left_s = source.status(client), _ASK_EVERY_S
            over = status.over
            if not told and not any(one.path.is_file() for one in source.files()):
                sys.stderr.write(f"sbtrainctl: {_why_none(source, status)}\n")
            told = True
        records = source.attempts()
        end = recorded_end(records[-1]) if records else None
        over = over or (end is not None and end.over)
        if over:
            sleep(_LOOK_EVERY_S)  # for the last lines
        printer.print(source.files())
        if over:
            return 0 if printer.shown else NONE_THERE
        sleep(_LOOK_EVERY_S)
        left_s -= _LOOK_EVERY_S


def _why_none(source: Source, status: RunStatus) -> str:
    """Why there is no output, or none yet."""
    what = "the job" if source.rank is None else source.rank
    yet = "" if status.over else " yet"
    reason = f": {status.reason}" if status.reason else ""
    said = f"no output of {what}{yet}; job {status.job_id} is {status.state}{reason}"
    files = source.files()
    if files and not files[0].path.is_file():
        there = f"{files[0].path} is no file that can be read"
        said += f"; {there if files[0].path.exists() else f'there is no {files[0].path}'}"
    elif source.rank is not None and status.attempts:
        folder = source.run.folder.attempt(status.attempts[-1].attempt).path
        said += f"; logs of ranks come to {folder}"
    return said


def _print_json(source: Source) -> int:
    records = source.attempts()
    files = (
        *job_files(source.run, source.plan, records),
        *rank_files(source.run, source.plan, records),
    )
    said = [
        {
            "what": one.what,
            "attempt": one.attempt,
            "path": str(one.path),
            "bytes": one.path.stat().st_size if one.path.is_file() else None,
        }
        for one in files
        if source.rank in (None, one.what)
    ]
    sys.stdout.write(json.dumps(said, indent=2) + "\n")
    return 0
