"""`sbtrainctl refit`: learn from the timing logs and cause ledgers of all listed runs."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain.commands.listed_runs import listed_runs
from sbtrain.commands.streams import screen_width
from sbtrain.errors import HomeError
from sbtrain.home import COEFFICIENTS_NAME, home, learnt_coefficients, made_home
from sbtrain_perf.errors import CoefficientsError, TimingLogError
from sbtrain_perf.table import wrapped
from sbtrain_perf.wording import count, duration

if TYPE_CHECKING:
    from sbtrain.commands.arguments import Subparsers
    from sbtrain.runs.run_list import ListedRun
    from sbtrain_jobs.record.ledger import LedgerEntry
    from sbtrain_jobs.run_folder import RunFolder
    from sbtrain_perf.coefficients import Coefficients, LearntLifetime
    from sbtrain_perf.gate import GateResult
    from sbtrain_perf.lifetimes import Lived
    from sbtrain_perf.refit import RefitResult
    from sbtrain_perf.request import Plan
    from sbtrain_perf.timing_log import AttemptTimings

_NAMED_GONE = 5
_SAY_FROM = 50  # logs; reading as many takes seconds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A file that could not be read."""

    path: str
    reason: str


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "refit",
        description="Learns from your runs; nothing is learnt until you call it. Reads how "
        "long each phase of each attempt took (timing logs) and how attempts ended (cause "
        "ledgers), and fits the coefficients of the models anew. Shown is the error of the "
        "coefficients before and after on these very runs. A fit is promoted unless its error "
        "on runs left out of it would rise by more than chance; the first run of its kind is "
        "believed as it is. The next plans use what was promoted.",
    )
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--dry-run", action="store_true", help="fit and show; write nothing")
    choice.add_argument(
        "--rollback",
        action="store_true",
        help="back to the generation before, until the next refit learns anew",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Raises TimingLogError, CoefficientsError, HomeError, MissingExtraError."""
    from sbtrain_perf.coefficients import load_coefficients
    from sbtrain_perf.refit import refit

    if args.rollback:
        return _roll_back(as_json=args.json)
    runs = listed_runs(os.environ).runs
    gone = _gone(runs)
    if gone:
        sys.stderr.write(f"sbtrainctl: warning: {_gone_in_words(gone)}\n")
    logs = timing_logs(runs)
    timings, skipped = _read(logs)
    lived, unread = lived_attempts(runs)
    skipped += unread
    for one in skipped:
        sys.stderr.write(f"sbtrainctl: warning: skipped {one.path}: {one.reason}\n")
    if not timings and not lived:
        raise TimingLogError(
            "there is no timing log to learn from",
            hint="submit a run with sbtrain first; one whose script starts its ranks itself "
            "writes it where they join()",
        )
    base = load_coefficients(learnt_coefficients(os.environ))
    result = _numbered(refit(timings, base, lived=lived), base)
    learnt = result.coefficients.generation > base.generation
    written = None
    if learnt and not args.dry_run:
        written = write_coefficients(result.coefficients, base, os.environ)
    laws = [
        law for law in result.coefficients.learnt.lifetimes if law not in base.learnt.lifetimes
    ]
    if args.json:
        _print_json(result, laws, len(timings), skipped, written, gone)
    else:
        sys.stdout.write(_text(result, laws, len(timings), written, learnt))
    return 0


def _gone(runs: Sequence[ListedRun]) -> list[str]:
    """Ids of runs whose folder is not there."""

    def is_there(folder: Path) -> bool:
        try:
            return folder.is_dir()
        except OSError:
            return False

    return [run.run_id for run in runs if not is_there(run.folder.path)]


def _gone_in_words(gone: Sequence[str]) -> str:
    folders = "the folder" if len(gone) == 1 else "the folders"
    named = ", ".join(gone[:_NAMED_GONE]) + (" ..." if len(gone) > _NAMED_GONE else "")
    return (
        f"{folders} of {count(len(gone), 'run')} of the list cannot be found, so nothing is "
        f"learnt from there: {named}"
    )


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


def _numbered(result: RefitResult, base: Coefficients) -> RefitResult:
    """No generation is called what an older one was that a rollback left behind."""
    kept = [_generation_of(path) for path in home(os.environ).glob("coefficients.*.json")]
    if result.coefficients is base or result.coefficients.generation > max(kept, default=0):
        return result
    numbered = dataclasses.replace(result.coefficients, generation=max(kept) + 1)
    return dataclasses.replace(result, coefficients=numbered)


def _generation_of(path: Path) -> int:
    number = path.name.split(".")[1]
    return int(number) if number.isdecimal() else 0


def _roll_back(*, as_json: bool) -> int:
    """Raises CoefficientsError, HomeError."""
    from sbtrain_perf.coefficients import load_coefficients, start_again_from_shipped

    now = learnt_coefficients(os.environ)
    if now is None:
        raise HomeError(
            "the shipped coefficients are in use: there is nothing to roll back",
            hint="sbtrainctl refit learns from the runs so far",
        )
    current = load_coefficients(now)
    before = load_coefficients()
    if current.parent:
        try:
            before = load_coefficients(now.with_name(f"coefficients.{current.parent}.json"))
        except CoefficientsError as error:
            raise CoefficientsError(
                error.message, hint=start_again_from_shipped(now)
            ) from error
        write_coefficients(before, current, os.environ)
    else:
        try:
            now.replace(now.with_name(f"coefficients.{current.generation}.json"))
        except OSError as error:
            raise HomeError(f"cannot move {now}: {error.strerror}") from error
    if as_json:
        said = {"generation": before.generation, "rolled_back": current.generation}
        sys.stdout.write(json.dumps(said, indent=2) + "\n")
    else:
        sys.stdout.write(
            f"rolled back from generation {current.generation} to "
            f"{before.label}; the next refit learns anew\n"
        )
    return 0


def _read(logs: Sequence[Path]) -> tuple[list[AttemptTimings], list[Skipped]]:
    from sbtrain_perf.timing_log import read_timing_log

    if len(logs) >= _SAY_FROM:
        sys.stderr.write(f"sbtrainctl: reading {len(logs)} timing logs\n")
    timings, skipped = [], []
    for path in logs:
        try:
            timings.append(read_timing_log(path))
        except TimingLogError as error:
            skipped.append(Skipped(path=str(path), reason=error.message))
    return timings, skipped


def _text(
    result: RefitResult,
    laws: Sequence[LearntLifetime],
    logs: int,
    written: Path | None,
    learnt: bool,
) -> str:
    from sbtrain_perf.decision import drift_in_words

    read = count(logs, "timing log")
    lines = [f"no timing was learnt from {read}"]
    if result.errors:
        lines = [f"{'phase':12} {'measured':>9} {'error before':>13} {'after':>8}"]
    lines += [
        f"{error.term:12} {error.samples:>9} {error.before:>13.1%} {error.after:>8.1%}"
        for error in result.errors
    ]
    lines += [
        f"lifetimes of {law.partition} on {law.cluster}: {duration(law.mean_s)} on average "
        f"({count(len(law.runs), 'run')}, {law.ended} of {count(law.attempts, 'attempt')} "
        "preempted)"
        for law in laws
    ]
    lines += [
        f"refused: {one.term} of {one.run_id}, attempt {one.attempt}: {one.reason}"
        for one in result.refused
    ]
    lines += [
        f"not promoted: {' '.join(map(str, one.key))}: {_rise(one)} ({count(one.runs, 'run')})"
        for one in result.held_back
    ]
    lines += [f"drift: {drift_in_words(one)}" for one in result.coefficients.drift]
    if not learnt:
        lines.append(f"nothing new to learn in {read}")
    elif written is None:
        lines.append(f"{read}; nothing was written (--dry-run)")
    else:
        lines.append(f"{read}; {result.coefficients.label} written to {written}")
    width = screen_width()
    return "".join(f"{part}\n" for line in lines for part in wrapped(line, width=width))


def _rise(one: GateResult) -> str:
    """Of lifetimes a Brier score, of all else a mean logarithm, shown as the error it is."""
    if one.key[0] == "lifetime":
        score = f"from {one.before:.3f} to {one.after:.3f}"
        return f"the Brier score on left-out runs would rise {score}"
    before, after = math.expm1(one.before), math.expm1(one.after)
    return f"error on left-out runs would rise from {before:.0%} to {after:.0%}"


def _print_json(
    result: RefitResult,
    laws: Sequence[LearntLifetime],
    logs: int,
    skipped: Sequence[Skipped],
    written: Path | None,
    gone: Sequence[str],
) -> None:
    from sbtrain_perf.codec import encode

    said = {
        "generation": result.coefficients.generation,
        "written": str(written) if written else None,
        "logs": logs,
        "errors": [encode(error) for error in result.errors],
        "lifetimes": [encode(law) for law in laws],
        "verdicts": [{**encode(one), "promoted": one.promoted} for one in result.verdicts],
        "drift": [encode(one) for one in result.coefficients.drift],
        "refused": [encode(one) for one in result.refused],
        "skipped": [encode(one) for one in skipped],
        "gone": list(gone),
    }
    sys.stdout.write(json.dumps(said, indent=2) + "\n")
