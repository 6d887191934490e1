"""What the runs of the list teach, by their timing logs and cause ledgers, and where it lies.
`sbtrainctl refit` learns when it is called, a run's job when it ends."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain.errors import HomeError
from sbtrain.home import COEFFICIENTS_NAME, home, learnt_coefficients, made_home
from sbtrain.runs.run_list import read_runs
from sbtrain_perf.errors import TimingLogError

if TYPE_CHECKING:
    from sbtrain.runs.run_list import ListedRun
    from sbtrain_jobs.record.ledger import LedgerEntry
    from sbtrain_jobs.run_folder import RunFolder
    from sbtrain_perf.coefficients import Coefficients
    from sbtrain_perf.lifetimes import Lived
    from sbtrain_perf.refit import RefitResult
    from sbtrain_perf.request import Plan
    from sbtrain_perf.timing_log import AttemptTimings

MOST_RUNS = 30  # of its workload, and of any, that the end of one learns from
ARRAYS_EVERY_S = 60.0  # not with each of a thousand tasks
ABANDONED_S = 120.0  # no job learns for as long
OFF = "SBTRAIN_REFIT"  # =0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A file that could not be read."""

    path: str
    reason: str


def learn_at_end(plan: Plan, environ: Mapping[str, str]) -> None:
    """Learn from the newest runs, one of which ends now; from how long they lived only where
    this one was preempted. Where it has no times of its own, or is none of this user's list,
    there is nothing to learn.

    Raises:
        SbtrainError: what was learnt cannot be read or written.
    """
    if environ.get(OFF) == "0":
        return
    listed = read_runs(environ).runs
    alike = [run for run in listed if run.workload == plan.workload]
    runs = [*listed[-MOST_RUNS:], *alike[-MOST_RUNS:]]
    own = [run for run in runs if run.run_dir == plan.run_dir]
    known = learnt_coefficients(environ)
    age_s = time.time() - known.stat().st_mtime if known else math.inf
    if not timing_logs(own) or (own[0].folder.tasks() and age_s < ARRAYS_EVERY_S):
        return
    with _alone(home(environ)) as alone:
        if alone:
            _learn(own, runs, environ)


def _learn(
    own: Sequence[ListedRun], runs: Sequence[ListedRun], environ: Mapping[str, str]
) -> None:
    from sbtrain_perf.coefficients import load_coefficients
    from sbtrain_perf.refit import refit

    base = load_coefficients(learnt_coefficients(environ))
    timings, _ = read_logs(timing_logs(runs))
    preempted = any(one.preempted for one in lived_attempts(own)[0])
    lived = lived_attempts(runs)[0] if preempted else []
    result = numbered(refit(timings, base, lived=lived), base, environ)
    if result.coefficients.generation > base.generation:
        write_coefficients(result.coefficients, base, environ)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """Whether no other job learns right now; the next one to end learns from ours too."""
    mark = folder / ".learning"
    try:
        if time.time() - mark.stat().st_mtime > ABANDONED_S:
            mark.unlink()
    except FileNotFoundError:
        pass
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        yield False
        return
    try:
        yield True
    finally:
        mark.unlink(missing_ok=True)


def timing_logs(runs: Sequence[ListedRun]) -> tuple[Path, ...]:
    """The logs of all attempts, array tasks included."""
    return tuple(log for folder in _folders(runs) for log in folder.timing_logs())


def _folders(runs: Sequence[ListedRun]) -> Iterator[RunFolder]:
    """Every run's folder once, and those of its tasks."""
    for folder in dict.fromkeys(run.folder for run in runs):
        yield from (folder, *folder.tasks().values())


def lived_attempts(runs: Sequence[ListedRun]) -> tuple[list[Lived], list[Skipped]]:
    """How long every attempt held its allocation, by the runs' cause ledgers, array tasks
    included; and the ledgers that cannot be read, or whose plan cannot."""
    from sbtrain_jobs.errors import LaunchError
    from sbtrain_jobs.record.ledger import read_ledger
    from sbtrain_perf.codec import read_plan
    from sbtrain_perf.errors import PlanError

    found: list[Lived] = []
    skipped: list[Skipped] = []
    for folder in _folders(runs):
        if not os.path.lexists(folder.ledger):
            continue
        try:
            found += _lived(read_plan(folder.plan), read_ledger(folder.ledger))
        except (PlanError, LaunchError) as error:
            skipped.append(Skipped(path=str(folder.ledger), reason=error.message))
    return found, skipped


def _lived(plan: Plan, entries: Sequence[LedgerEntry]) -> Iterator[Lived]:
    """Of one run. An attempt that left no end is as old as the last line it wrote: the next
    attempt's word on it dates from then. One still running has seen nothing end."""
    from sbtrain_jobs.record.ledger import LOST_DETAIL, attempts, seconds_between
    from sbtrain_perf.lifetimes import Lived

    for record in attempts(entries):
        own = [one for one in entries if one.attempt == record.attempt]
        last = own[-1]
        if last.event == "ended" and last.detail.startswith(LOST_DETAIL):
            last = own[-2] if len(own) > 1 else last
        age_s = seconds_between(record.started_at, last.at)
        yield Lived(
            run_id=plan.run_id,
            attempt=record.attempt,
            cluster=plan.cluster,
            partition=plan.partition,
            age_s=math.nan if age_s is None else age_s,  # which refit refuses
            preempted=record.cause == "preempted",
            stated_mean_s=plan.basis.preemption_s,
        )


def write_coefficients(
    new: Coefficients, base: Coefficients, environ: Mapping[str, str]
) -> Path:
    """Put new coefficients in the place of the old ones, which stay beside them by their
    generation.

    Raises:
        HomeError: they cannot be written; the old ones count on.
    """
    from sbtrain_perf.coefficients import coefficients_to_json
    from sbtrain_staging.publish import publish_bytes

    folder = made_home(environ)
    path = folder / COEFFICIENTS_NAME
    try:
        if path.exists():
            kept = folder / f"coefficients.{base.generation}.json"
            publish_bytes(kept, path.read_bytes())
        publish_bytes(path, coefficients_to_json(new).encode())
    except OSError as error:
        raise HomeError(
            f"cannot write {path}: {error.strerror}",
            hint="make room there, or set SBTRAIN_HOME to another folder",
        ) from error
    return path


def read_logs(logs: Sequence[Path]) -> tuple[list[AttemptTimings], list[Skipped]]:
    from sbtrain_perf.timing_log import read_timing_log

    timings, skipped = [], []
    for path in logs:
        try:
            timings.append(read_timing_log(path))
        except TimingLogError as error:
            skipped.append(Skipped(path=str(path), reason=error.message))
    return timings, skipped


def numbered(
    result: RefitResult, base: Coefficients, environ: Mapping[str, str]
) -> RefitResult:
    """No generation is called what an older one was that a rollback left behind."""
    kept = [_generation_of(path) for path in home(environ).glob("coefficients.*.json")]
    if result.coefficients is base or result.coefficients.generation > max(kept, default=0):
        return result
    numbered = dataclasses.replace(result.coefficients, generation=max(kept) + 1)
    return dataclasses.replace(result, coefficients=numbered)


def _generation_of(path: Path) -> int:
    number = path.name.split(".")[1]
    return int(number) if number.isdecimal() else 0
