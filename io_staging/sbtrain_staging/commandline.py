"""The command line of staging: `python -m sbtrain_staging run|...`, one rank a node."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain_staging.errors import ScratchError, StagingError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

LAST_WORDS_S = 3.0
SHARE_VARIABLE = "SBTRAIN_STAGE_SHARE"
# What somebody can do whose job was submitted with sbtrain, which has none of our options.
_SCRATCH_HINT = (
    "free space there, leave the node out (--exclude{}), or give the partition another "
    "scratch in the site file"
)
_SUFFIXES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def bytes_of(text: str) -> int:
    """A size such as 300G, in binary units; raises ArgumentTypeError for other text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write for example 300G")
    return int(float(match[1]) * _SUFFIXES[match[2].upper()])


def rate_of(text: str) -> int:
    """A size a second that is more than nothing."""
    if rate := bytes_of(text):
        return rate
    raise argparse.ArgumentTypeError("a rate of 0 moves nothing")


def count_of(text: str) -> int:
    """A whole number: 1 or more."""
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")


def share_of(environ: Mapping[str, str]) -> str:
    """Whether nodes share copies where the command line does not say."""
    said = environ.get(SHARE_VARIABLE) or "auto"
    if said in ("auto", "never"):
        return said
    raise StagingError(f"{SHARE_VARIABLE} is {said!r}", hint="auto or never")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sbtrain_staging",
        description="Bring data sets to every node's scratch, reading the source once.",
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        allow_abbrev=False,
        usage="%(prog)s --to TEMPLATE --key KEY\n       [OPTIONS] SOURCE ...",
        help="stage files or trees; start it as one rank a node",
        description="Stage files or trees to every node. Start one rank a node, for example "
        "with srun --mpi=pmi2 --ntasks-per-node=1.",
    )
    run.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help="file or folder")
    run.add_argument(
        "--to",
        required=True,
        metavar="TEMPLATE",
        help="folder of a node that the copies go to; in it %%n is the node's name, %%u the "
        "user's, %%j the job's number",
    )
    run.add_argument(
        "--key", required=True, help="name of the run or job that needs the copies"
    )
    run.add_argument(
        "--report", type=Path, metavar="FILE", help="write a report to it, as JSON"
    )
    run.add_argument(
        "--events",
        type=Path,
        metavar="FILE",
        help="append the progress to it, one JSON object a line",
    )
    run.add_argument(
        "--expect-size", type=int, metavar="BYTES", help="fail unless the sources hold so much"
    )
    run.add_argument(
        "--quota", type=bytes_of, metavar="SIZE", help="most that all copies on a node may take"
    )
    run.add_argument(
        "--hold",
        type=count_of,
        metavar="SECONDS",
        help="keep the copies for the key so long, however little room there is (default: a "
        "day)",
    )
    run.add_argument(
        "--readers",
        type=count_of,
        default=1,
        metavar="N",
        help="so many nodes at least read the source; all others get it from them (default: 1, "
        "on Lustre one for each stripe of the largest file)",
    )
    run.add_argument(
        "--mode",
        choices=("replicate", "shard", "stream"),
        default="replicate",
        metavar="MODE",
        help="replicate: every node holds all; shard: each node holds its part; stream: "
        "nothing is copied, and training reads the source (default: replicate)",
    )
    run.add_argument(
        "--epoch",
        type=count_of,
        metavar="N",
        help="with --mode shard: deal the parts anew for this epoch; nodes exchange what they "
        "hold, and parts of epochs before the last are given up",
    )
    run.add_argument(
        "--share",
        choices=("auto", "never"),
        default=None,
        help="auto: nodes on one filesystem of one host copy once and link; never: each node "
        f"has copies of its own (default: what ${SHARE_VARIABLE} says, else auto)",
    )
    run.add_argument(
        "--order-seed",
        type=int,
        metavar="SEED",
        help="deal and send in the order drawn from it",
    )
    run.add_argument("--quiet", action="store_true", help="say nothing but errors on stderr")
    said = run.add_mutually_exclusive_group()
    said.add_argument("--json", action="store_true", help="print the report on stdout")
    said.add_argument(
        "--print-paths",
        action="store_true",
        help="print where the first rank's node has each source, one a line",
    )
    _add_node_commands(commands)
    return parser


def _add_node_commands(commands: Subparsers) -> None:
    """Commands that look at one node, or at the source alone."""
    status = commands.add_parser(
        "status",
        allow_abbrev=False,
        help="list the copies on this node",
        description="List the copies on this node, and whether a job still needs them.",
    )
    clean = commands.add_parser(
        "clean",
        allow_abbrev=False,
        help="remove copies on this node",
        description="Remove copies on this node: all (--all), or those of each SOURCE. What a "
        "run or job still needs stays; --key says that one needs its copies no more.",
    )
    for command in (status, clean):
        command.add_argument("--to", required=True, metavar="TEMPLATE", help="as for run")
        command.add_argument("--json", action="store_true", help="print JSON")
    clean.add_argument("--key", help="name of a run or job, as it was given to run")
    clean.add_argument("--all", action="store_true", help="remove all copies, finished or not")
    clean.add_argument("sources", nargs="*", type=Path, metavar="SOURCE", help="remove these")
    plan = commands.add_parser(
        "plan",
        allow_abbrev=False,
        help="say what staging would move, and about how long it takes",
        description="Say what staging would move, and about how long it takes. Moves nothing.",
    )
    plan.add_argument("sources", nargs="+", type=Path, metavar="SOURCE", help="file or folder")
    plan.add_argument(
        "--nodes", type=count_of, required=True, metavar="N", help="how many nodes get it"
    )
    for name, what in (
        ("source", "reads from the shared filesystem"),
        ("link", "sends to another node"),
        ("scratch", "writes to its scratch"),
    ):
        plan.add_argument(
            f"--{name}-rate",
            type=rate_of,
            default="1G",
            metavar="SIZE",
            help=f"what one node {what} in a second (default: 1G)",
        )
    plan.add_argument("--json", action="store_true", help="print JSON")


def main(argv: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run a command; the exit status of the process."""
    options = _parser().parse_args(argv)
    if options.command == "run":
        return _run(options, environ)
    commands = {"status": _status, "clean": _clean, "plan": _plan}
    try:
        commands[options.command](options, environ)
    except StagingError as error:
        return _complain(error, environ)
    except OSError as error:
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        return _complain(ScratchError(f"{where}{error.strerror or error}"), environ)
    return 0


def _status(options: argparse.Namespace, environ: Mapping[str, str]) -> None:
    from sbtrain_staging.cache.housekeeping import copies_on, shown_copies
    from sbtrain_staging.cache.scratch import locate
    from sbtrain_staging.ranks.world import node_name

    copies = copies_on(locate(options.to, environ))
    _print(options, copies, shown_copies(node_name(environ), copies))


def _clean(options: argparse.Namespace, environ: Mapping[str, str]) -> None:
    from sbtrain_staging.cache.housekeeping import clean, shown_copies
    from sbtrain_staging.cache.scratch import locate
    from sbtrain_staging.ranks.world import node_name

    removed = clean(
        locate(options.to, environ),
        key=options.key,
        sources=options.sources,
        everything=options.all,
    )
    text = shown_copies(f"removed from {node_name(environ)}", removed) if removed else ""
    _print(options, removed, text)


def _plan(options: argparse.Namespace, environ: Mapping[str, str]) -> None:
    from sbtrain_staging.engine.estimate import forecast, shown_forecasts
    from sbtrain_staging.engine.simulate import Rates
    from sbtrain_staging.sources.scan import scan

    rates = Rates(
        source_bytes_per_s=options.source_rate,
        link_bytes_per_s=options.link_rate,
        scratch_bytes_per_s=options.scratch_rate,
    )
    found = [forecast(scan(source), options.nodes, rates) for source in options.sources]
    _print(options, found, shown_forecasts(found))


def _print(options: argparse.Namespace, values: Sequence[DataclassInstance], text: str) -> None:
    if options.json:
        text = json.dumps([asdict(value) for value in values], indent=2) + "\n"
    sys.stdout.write(text)


def _run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from sbtrain_staging.engine.settings import DEFAULT_HOLD_S, Settings
    from sbtrain_staging.engine.stage import Stager
    from sbtrain_staging.ranks import meeting
    from sbtrain_staging.ranks.joining import join_world, launched_rank
    from sbtrain_staging.ranks.world import node_name

    try:
        share = options.share or share_of(environ)
        if options.report is not None:
            meeting.come(options.report, node_name(environ))
        try:
            world = join_world(environ)
        finally:
            if options.report is not None:
                meeting.met(options.report, node_name(environ))
    except StagingError as error:
        _keep_exit_code(error)
        if launched_rank(environ) == 0:
            return _failed(error, options.report, environ)
        # A launcher may end all ranks with the first: rank 0 is to have said why by then.
        time.sleep(LAST_WORDS_S)
        return error.exit_code
    settings = Settings(
        to=options.to,
        key=options.key,
        expect_bytes=options.expect_size,
        quota_bytes=options.quota,
        readers=options.readers,
        hold_s=options.hold or DEFAULT_HOLD_S,
        order_seed=options.order_seed,
        mode=options.mode,
        epoch=options.epoch or 0,
        quiet=options.quiet,
        share=share,
        events=options.events,
    )
    code = 0
    try:
        report = Stager(world, settings, environ).run(options.sources)
        if world.rank == 0:
            if options.report is not None:
                report.write(options.report)
            if options.json:
                sys.stdout.write(report.to_json())
            if options.print_paths:
                sys.stdout.writelines(f"{path}\n" for path in report.nodes[0].paths)
    except StagingError as error:
        if world.size > 1:
            _keep_exit_code(error)
        lead = world.rank == 0
        code = _failed(error, options.report, environ) if lead else error.exit_code
    except Exception as error:
        import traceback

        traceback.print_exc()
        fault = StagingError(f"{type(error).__name__}: {error}", hint="this is a bug")
        world.fail(fault)
        code = fault.exit_code
    sys.stdout.flush()
    world.leave(code)
    return code


def _keep_exit_code(error: StagingError) -> None:
    """A launcher that ends all ranks with the first to fail must not hide why they failed."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(error.exit_code))


def _failed(error: StagingError, report: Path | None, environ: Mapping[str, str]) -> int:
    from sbtrain_staging.reports.run_report import write_failure

    if report is not None:
        write_failure(report, error)
    return _complain(error, environ)


def _complain(error: StagingError, environ: Mapping[str, str]) -> int:
    sys.stderr.write(f"sbtrain: error: {error.message}\n")
    if hint := hint_for(error, environ):
        sys.stderr.write(f"sbtrain: hint: {hint}\n")
    sys.stderr.flush()
    return error.exit_code


def hint_for(error: StagingError, environ: Mapping[str, str]) -> str:
    """The error's hint; inside a job of sbtrain's, what its user can do instead."""
    if "SBTRAIN_ATTEMPT" not in environ or not isinstance(error, ScratchError):
        return error.hint
    node = re.search(r"\bon (?:node )?([A-Za-z0-9][\w.-]*\w|\w)(?::|$)", error.message)
    return _SCRATCH_HINT.format("" if node is None else f"={node[1]}")
