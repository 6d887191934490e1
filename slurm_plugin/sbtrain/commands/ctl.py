"""`sbtrainctl`: everything beside submitting. Each command is a file of its own, imported
when it is called."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Protocol, cast

from sbtrain.commands.streams import StdoutError, mend_streams
from sbtrain_perf.errors import SbtrainError
from sbtrain_staging.errors import StagingError

INTERRUPTED = 130
_COMMANDS = {
    "plan": "weigh partitions, layouts and nodes for a run; needs no Slurm",
    "status": "runs with their attempts, causes and predictions",
    "refit": "learn from the timing logs of all runs",
    "why": "where a run's prediction came from, and how far off it was",
    "site": "show or check a site file",
    "stage": "bring data to the nodes by hand: plan, run, status, clean",
    "cluster": "start, stop and look at a private Slurm on this host",
}

Subparsers = argparse._SubParsersAction  # argparse has no public name for it


class _Command(Protocol):
    """What a command's module holds."""

    def add_parser(self, subparsers: Subparsers[argparse.ArgumentParser]) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def main() -> int:
    mend_streams()
    return run(sys.argv[1:], os.environ)


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Exit status of one call."""
    try:
        status = _run(argv, environ)
        sys.stdout.flush()
        return status
    except (SbtrainError, StagingError) as error:
        from sbtrain.commands.report import report

        return report(error)
    except KeyboardInterrupt:
        sys.stderr.write("sbtrainctl: interrupted\n")
        return INTERRUPTED
    except ModuleNotFoundError as error:
        from sbtrain.commands.report import missing_package

        return missing_package(error)
    except StdoutError as error:
        from sbtrain.commands.report import stdout_failed

        return stdout_failed(error)


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    name = argv[0] if argv and argv[0] in _COMMANDS else None
    if name == "plan":
        # Its words are those of sbtrain, which argparse does not know.
        from sbtrain.commands.plan import run as run_plan

        return run_plan(argv[1:], environ)
    if name == "stage":
        from sbtrain_staging.commandline import main as stage

        return stage(argv[1:], environ)
    args = _parser(name).parse_args(argv)
    return _load(args.command).run(args)


def _parser(name: str | None) -> argparse.ArgumentParser:
    """With the named command's own options; with all names where none was given."""
    parser = argparse.ArgumentParser(
        prog="sbtrainctl",
        description="Plans, runs and what was learnt from them; a private Slurm.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    if name is not None:
        _load(name).add_parser(subparsers)
    else:
        for command, text in _COMMANDS.items():
            subparsers.add_parser(command, help=text, allow_abbrev=False)
    return parser


def _load(name: str) -> _Command:
    return cast("_Command", import_module(f"sbtrain.commands.{name}"))


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from sbtrain.commands.report import version

        sys.stdout.write(f"sbtrain {version()}\n")
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
