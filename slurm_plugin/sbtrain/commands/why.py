"""`sbtrainctl why`: a run's prediction term by term, what was measured, and its sources."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sbtrain.commands.listed_runs import listed_runs
from sbtrain.commands.streams import screen_width
from sbtrain.home import COEFFICIENTS_NAME, home, learnt_coefficients
from sbtrain.runs.named_run import HELP, METAVAR, named_run, plan_of
from sbtrain_perf.codec import encode
from sbtrain_perf.errors import TimingLogError
from sbtrain_perf.table import Column, laid_out, wrapped
from sbtrain_perf.wording import amount, duration, ratio

if TYPE_CHECKING:
    from sbtrain.commands.arguments import Subparsers
    from sbtrain_jobs.run_folder import RunFolder
    from sbtrain_perf.account import Account, TermAccount
    from sbtrain_perf.coefficients import Coefficients
    from sbtrain_perf.timing_log import AttemptTimings

_MOST_LOGS = 12  # of runs that were learnt from, the newest
_COLUMNS = (
    Column(title="term"),
    *(Column(title=name, right=True) for name in ("predicted", "90 %", "measured", "ratio")),
    Column(title="from"),
)


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "why",
        description="Each part of a run's predicted time (staging, start-up, a step, a "
        "checkpoint ...) beside what was measured: with its 90 % interval, the figures it came "
        "from, and the runs that these were learnt from.",
    )
    parser.add_argument("run", metavar=METAVAR, help=HELP)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Raises RequestError, PlanError, CoefficientsError, HomeError, MissingExtraError."""
    from sbtrain_perf.account import account_for, runs_learnt_from

    runs = listed_runs(os.environ).runs
    one = named_run(args.run, runs)
    plan = plan_of(one)
    coefficients = _planned_with(plan.coefficients)
    wanted = set(runs_learnt_from(plan, coefficients)) - {plan.run_id}
    others = [other for other in runs if other.run_id in wanted][-_MOST_LOGS:]
    account = account_for(
        plan,
        _timings([one.folder]),
        coefficients,
        learnt_from=_timings([other.folder for other in others]),
    )
    if args.json:
        said = encode(account)
        for term, shown in zip(account.terms, said["terms"], strict=True):
            shown |= {"miss_s": term.miss_s, "inside": term.inside}
        sys.stdout.write(json.dumps(said, indent=2) + "\n")
    else:
        sys.stdout.write("\n".join(_lines(account, width=screen_width())) + "\n")
    return 0


def _planned_with(label: str) -> Coefficients:
    """The coefficients of that label where they are still there, else the ones in use."""
    from sbtrain_perf.coefficients import load_coefficients

    if label == "shipped":
        return load_coefficients()
    number = label.rpartition(" ")[2]
    for path in (
        home(os.environ) / COEFFICIENTS_NAME,
        home(os.environ) / f"coefficients.{number}.json",
    ):
        if path.is_file():
            found = load_coefficients(path)
            if found.label == label:
                return found
    return load_coefficients(learnt_coefficients(os.environ))


def _timings(folders: Sequence[RunFolder]) -> list[AttemptTimings]:
    from sbtrain_perf.timing_log import read_timing_log

    found = []
    for folder in folders:
        for path in folder.timing_logs():
            try:
                found.append(read_timing_log(path))
            except TimingLogError as error:
                sys.stderr.write(f"sbtrainctl: warning: skipped {path}: {error.message}\n")
    return found


def _lines(account: Account, *, width: int) -> Iterator[str]:
    terms = [one for one in account.terms if one.predicted_s > 0 or one.measured_s is not None]
    for text in _beginning(account):
        yield from wrapped(text, width=width)
    yield ""
    for block in laid_out(_COLUMNS, [_cells(term) for term in terms], width=width):
        yield from block
    yield ""
    for text in _sources(account, terms):
        yield from wrapped(text, width=width)


def _beginning(account: Account) -> Iterator[str]:
    yield f"{account.run_id}: planned with {account.coefficients} coefficients" + (
        "" if account.known else " (no longer there: sources are those in use now)"
    )
    total = duration(account.total_s)
    if account.low_s is not None and account.high_s is not None:
        total += f" (90 %: {duration(account.low_s)} to {duration(account.high_s)})"
    yield f"predicted in all: {total}"


def _sources(account: Account, terms: Sequence[TermAccount]) -> Iterator[str]:
    yield f"biggest miss: {account.biggest_miss}"
    if account.preemption:
        yield account.preemption
    for term in terms:
        for near in term.nearest:
            nodes = "1 node" if near.nodes == 1 else f"{near.nodes} nodes"
            yield (
                f"{term.term} was learnt from {near.run_id} on {nodes}: "
                f"{duration(near.measured_s)}"
            )
    for term in terms:
        for figure in term.figures:
            value = f"{amount(figure.value)} {figure.unit}"
            yield f"{term.term}: {figure.name} = {value} ({figure.source})"


def _cells(term: TermAccount) -> tuple[str, ...]:
    interval, times, measured = "-", "-", "-"
    if term.interval is not None:
        interval = f"{duration(term.interval.low_s)} - {duration(term.interval.high_s)}"
    if term.measured_s is not None:
        measured = duration(term.measured_s)
        if term.predicted_s > 0:
            times = f"{ratio(term.measured_s / term.predicted_s)} x"
    source = term.source
    if term.samples:
        source += f", {term.samples} samples" if term.samples > 1 else ", 1 sample"
    if term.inside is False:
        source += "; OUTSIDE"
    return (term.term, duration(term.predicted_s), interval, measured, times, source)
