"""`sbtrainctl refit`: learn from the timing logs and cause ledgers of all listed runs."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain.commands.listed_runs import listed_runs
from sbtrain.commands.streams import screen_width
from sbtrain.errors import HomeError
from sbtrain.home import learnt_coefficients
from sbtrain.runs.learning import (
    Skipped,
    lived_attempts,
    numbered,
    read_logs,
    timing_logs,
    write_coefficients,
)
from sbtrain_perf.errors import CoefficientsError, TimingLogError
from sbtrain_perf.table import wrapped
from sbtrain_perf.wording import count, duration

if TYPE_CHECKING:
    from sbtrain.commands.arguments import Subparsers
    from sbtrain.runs.run_list import ListedRun
    from sbtrain_perf.coefficients import LearntLifetime
    from sbtrain_perf.gate import GateResult
    from sbtrain_perf.refit import RefitResult

_NAMED_GONE = 5
_SAY_FROM = 50  # logs; reading as many takes seconds


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "refit",
        description="Learns from your runs, as a run's job does when it has ended: this learns "
        "from all that are listed, and shows what. Reads how "
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
    if len(logs) >= _SAY_FROM:
        sys.stderr.write(f"sbtrainctl: reading {len(logs)} timing logs\n")
    timings, skipped = read_logs(logs)
    lived, unread = lived_attempts(runs)
    skipped += unread
    for one in skipped:
        sys.stderr.write(f"sbtrainctl: warning: skipped {one.path}: {one.reason}\n")
    if not timings and not lived:
        raise TimingLogError(
            "there is no timing log to learn from",
            hint="submit a run with sbtrain first; one whose script starts its ranks itself "
            "writes it where they join(), or train with a framework that is known",
        )
    base = load_coefficients(learnt_coefficients(os.environ))
    result = numbered(refit(timings, base, lived=lived), base, os.environ)
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
