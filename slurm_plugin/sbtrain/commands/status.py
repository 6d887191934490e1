"""`sbtrainctl status`: runs with their attempts and causes, what was predicted and measured."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain.commands.listed_runs import listed_runs
from sbtrain.commands.streams import screen_width, told_while_slow
from sbtrain.runs.named_run import HELP, METAVAR, named_run
from sbtrain.runs.run_status import RunStatus, overview
from sbtrain.slurm.command_client import CommandsClient
from sbtrain_jobs.record.ledger import seconds_between
from sbtrain_perf.errors import MissingExtraError, SbtrainError
from sbtrain_perf.table import Column, laid_out, wrapped
from sbtrain_perf.wording import amount, brief_duration, count, duration

if TYPE_CHECKING:
    from sbtrain.commands.arguments import Subparsers
    from sbtrain_perf.timing_log import AttemptTimings

LAST_STEPS = 50
_MOST_BYTES = 2**63  # what no file holds: a line that says so is damaged
_COLUMNS = (
    *(Column(title="run"), Column(title="job", right=True), Column(title="state")),
    *(Column(title=name, right=True) for name in ("tries", "saved", "planned", "took")),
    Column(title="causes"),
)


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "status",
        description="The runs that were submitted with sbtrain, the newest last; or one run "
        "with each attempt, or an array with its tasks by state. Slurm is asked once for all. "
        "docs/status.md of sbtrain's source says what each state and cause means.",
    )
    parser.add_argument("run", nargs="?", metavar=METAVAR, help=HELP)
    parser.add_argument(
        "--last", type=_count, default=20, metavar="N", help="show the N newest (default: 20)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Raises HomeError; RequestError for a run that is not in the list; PlanError where an
    array's tasks cannot be told."""
    listed = listed_runs(os.environ)
    runs = listed.runs
    if args.run is not None:
        runs = (named_run(args.run, runs),)
    with told_while_slow("asking Slurm about the runs", who="sbtrainctl"):
        found = overview(
            runs[-args.last :],
            CommandsClient(query_timeout_s=30.0),
            closely=args.run is not None,
        )
    if found.silence:
        sys.stderr.write(f"sbtrainctl: warning: {found.silence}\n")
    if args.json:
        _print_json(found.runs)
    elif not found.runs and listed.left_out:
        sys.stdout.write("no runs that can be read\n")
    elif not found.runs:
        sys.stdout.write("no runs yet: submit one with sbtrain\n")
    elif args.run is not None:
        shown = (detail(status, width=screen_width()) for status in found.runs)
        sys.stdout.write("\n".join(shown))
    else:
        sys.stdout.write(table(found.runs, width=screen_width()))
    return 0


def table(runs: Sequence[RunStatus], *, width: int) -> str:
    blocks = laid_out(_COLUMNS, [_cells(status) for status in runs], width=width)
    lines = [line for block in blocks for line in block]
    problems = [f"{status.run_id}: {status.problem}" for status in runs if status.problem]
    if problems:
        lines.append("")
    lines += [line for one in problems for line in wrapped(one, width=width)]
    return "\n".join(lines) + "\n"


def _cells(status: RunStatus) -> tuple[str, ...]:
    saved = "-" if status.saved_step is None else f"{status.saved_step:,}"
    whole = not status.tasks
    last = ", ".join(causes(status)) if whole else ", ".join(_tasks(status))
    return (
        status.run_id,
        status.job_id,
        status.state,
        str(len(status.attempts)) if whole else "-",
        (f"{saved}/{status.steps:,}" if status.steps else saved) if whole else "-",
        _brief(status.predicted_s) if whole else "-",
        _brief(status.took_s),
        last or ("see below" if status.problem else ""),
    )


def causes(status: RunStatus) -> list[str]:
    """A supervisor that was killed, or whose node died, has written no end."""
    going = status.attempts[-1] if status.going else None
    return [
        one.cause or ("running" if one is going else "end not recorded")
        for one in status.attempts
    ]


def _tasks(status: RunStatus) -> list[str]:
    return [f"{group.count:,} {group.state}" for group in status.tasks]


def detail(status: RunStatus, *, width: int) -> str:
    rows = [
        ("run", f"{status.run_id}, job {status.job_id}"),
        ("state", status.state + (f" ({status.reason})" if status.reason else "")),
    ]
    if status.problem:
        rows.append(("problem", status.problem))
    if status.layout is not None:
        way = "all-reduce" if status.layout == "allreduce" else "parameter servers: "
        way += str(status.servers) if status.servers else ""
        nodes = count(status.nodes, "node")
        steps = count(status.steps, "step") if status.steps else "steps not known"
        rows.append(("plan", f"{nodes} of {status.partition}, {way}, {steps}"))
    for group in status.tasks:
        numbers = group.numbers.replace(",", ", ")
        rows.append(("tasks", f"{group.count:,} {group.state}: {numbers}"))
    rows.append(("folder", status.run_dir))
    if status.attempts and status.attempts[-1].output:
        rows.append(("output", status.attempts[-1].output))
    if now := under_way(status):
        rows.append(("now", now))
    if status.saved_step is not None:
        rows.append(("saved", f"step {status.saved_step:,}"))
    if status.metrics:
        said = ", ".join(f"{name} {amount(value)}" for name, value in status.metrics.items())
        rows.append(("result", said))
    rows += [("attempt", text) for text in _attempts(status)]
    lines = [
        line
        for name, text in rows
        for line in wrapped(f"{name:9}{text}", width=width, hanging=" " * 9)
    ]
    lines += ["", *_measured(status)]
    return "\n".join(lines).rstrip() + "\n"


def under_way(status: RunStatus) -> str:
    """How far the last attempt is: with staging, or in its steps."""
    if not status.going:
        return ""
    from sbtrain_staging.reports.events import newest_event

    folder = status.folder.attempt(status.attempts[-1].attempt)
    found = newest_event(folder.staging_events) or {}
    if found.get("event") != "progress":
        return _stepping(folder.timings)
    done, wanted, rate = (_bytes(found.get(k)) for k in ("done_bytes", "bytes", "bytes_1_s"))
    if done is None or wanted is None or rate is None:
        return ""
    left = f", {duration((wanted - done) / rate)} left" if rate else ""
    return (
        f"{found.get('title')}: {done / max(wanted, 1):.0%} on {found.get('node')}, the last, "
        f"{amount(rate / 1e6)} MB/s{left}"
    )


def _stepping(path: Path) -> str:
    """The last step of the rank that is ahead, how long its last steps took, and how long those
    that are left will: where they are known, and counted from the run's first."""
    if not path.exists():
        return ""
    from sbtrain_perf.timing_log import read_timing_log

    try:
        log = read_timing_log(path)
    except SbtrainError:
        return ""  # said where the measured times are shown
    ranks = [rank for rank in log.ranks if len(rank.step)]
    if not ranks:
        return ""
    ahead = max(ranks, key=lambda rank: int(rank.step[-1]))
    each_s = statistics.median(ahead.seconds[-LAST_STEPS:].tolist())
    step = int(ahead.step[-1])
    said = f"step {step:,}, {duration(each_s)} a step"
    counted = log.attempt == 0 or int(ahead.step[0]) > 2
    if not (log.plan.steps_known and counted and step < log.plan.steps):
        return said
    return f"{said}, {duration((log.plan.steps - step) * each_s)} of steps left"


def _bytes(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < _MOST_BYTES else None


def _attempts(status: RunStatus) -> Iterator[str]:
    for one in status.attempts:
        words = [f"{one.attempt}: {one.started_at[:19]} on {one.nodes or 'unknown nodes'}"]
        if one.notices:
            words.append(f"told to stop ({', '.join(one.notices)})")
        if one.saved_step is not None:
            words.append(f"saved step {one.saved_step:,}")
        if one.ended_at:
            passed = _between(one.started_at, one.ended_at)
            words.append(f"{one.cause} after {passed}")
            if one.detail:
                words.append(one.detail)
            if one.exit_code and not one.detail.endswith(f"exit status {one.exit_code}"):
                words.append(f"exit status {one.exit_code}")
        if one.requeued:
            words.append("requeued")
        yield ", ".join(words)


def _between(begin: str, end: str) -> str:
    passed_s = seconds_between(begin, end)
    return "some time" if passed_s is None else duration(passed_s)


def _measured(status: RunStatus) -> Iterator[str]:
    """Predicted beside measured, term by term, where timing logs can be read here."""
    if status.tasks:
        return
    terms = list(_terms(status))
    if status.predicted_s is None and not terms:
        return
    yield f"{'':12} {'predicted':>10} {'measured':>10}"
    yield from terms
    predicted = duration(status.predicted_s) if status.predicted_s is not None else "-"
    took = duration(status.took_s) if status.took_s is not None else "-"
    yield f"{'total':12} {predicted:>10} {took:>10}"


def _terms(status: RunStatus) -> Iterator[str]:
    from sbtrain_perf.measured import TERMS, measure_attempts
    from sbtrain_perf.timing_log import read_timing_log

    timings = []
    for path in status.folder.timing_logs():
        try:
            timings.append(read_timing_log(path))
        except MissingExtraError as error:
            sys.stderr.write(f"sbtrainctl: {error.message}: {error.hint}\n")
            return
        except SbtrainError as error:
            sys.stderr.write(f"sbtrainctl: warning: {error.message}\n")
    if not timings:
        return
    prediction = timings[-1].prediction
    predicted = {
        "stage": prediction.stage_s,
        "start": prediction.start_s,
        "step": prediction.step_s,
        "checkpoint": prediction.checkpoint_s,
    }
    samples = measure_attempts(tuple(timings)).samples
    for term in TERMS:
        seconds = [sample.seconds for sample in samples if sample.term == term]
        if seconds:
            mean_s = sum(seconds) / len(seconds)
            planned = duration(predicted[term]) if status.predicted_s is not None else "-"
            yield f"{term:12} {planned:>10} {duration(mean_s):>10}"
            if term == "step" and (share := _input_share(timings)) is not None:
                yield f"{'  its input':12} {'':>10} {duration(share * mean_s):>10}"


def _input_share(timings: Sequence[AttemptTimings]) -> float | None:
    """Of the time of steps that which waited for data; None where nobody saw it."""
    seen = [one for log in timings for one in log.named("steps") if "input_s" in one.numbers]
    steps_s = sum(one.seconds for one in seen)
    return sum(one.numbers["input_s"] for one in seen) / steps_s if steps_s > 0 else None


def _print_json(runs: Sequence[RunStatus]) -> None:
    from sbtrain_perf.codec import encode

    sys.stdout.write(json.dumps([encode(status) for status in runs], indent=2) + "\n")


def _brief(seconds: float | None) -> str:
    return "-" if seconds is None else brief_duration(seconds)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
