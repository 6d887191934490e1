"""`sbtrainctl`: everything beside submitting. Each command is a file of its own, imported
when it is called."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from sbtrain.commands.arguments import Parser
from sbtrain.commands.entry import exit_status
from sbtrain.commands.streams import mend_streams
from sbtrain_jobs.slurm_calls import call_under_way, pass_on

if TYPE_CHECKING:
    from sbtrain.commands.arguments import Subparsers

COMMANDS = {
    "plan": "show what sbtrain would choose for a script, and why; needs no Slurm",
    "status": "show how runs stand: attempts, why each ended, time predicted and taken",
    "logs": "print what a run's job or one of its ranks wrote, and follow it",
    "refit": "learn from what runs have measured, so that the next plans are closer",
    "why": "show where a run's predicted time came from, and where it was wrong",
    "site": "show what is known of the cluster; check or write files that say more of it",
    "stage": "bring data to the nodes by hand; see or remove what lies there",
    "cluster": "start, stop and look at a private Slurm on this host",
}


class _Command(Protocol):
    """What a command's module holds."""

    def add_parser(self, subparsers: Subparsers) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


def main() -> int:
    mend_streams()
    return run(sys.argv[1:], os.environ)


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Exit status of one call."""
    return exit_status(lambda: _run(argv, environ), who="sbtrainctl")


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    call = call_under_way(environ)
    if call and (argv[:1] == ["status"] or not {*argv[:1]} & COMMANDS.keys()):
        pass_on(call)  # a wrapper of squeue may be made of status
    name = argv[0] if argv and argv[0] in COMMANDS else None
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
    parser = Parser(
        prog="sbtrainctl",
        description="Everything beside submitting a run, which is sbtrain's. "
        "'sbtrainctl COMMAND --help' tells more of each.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    if name is not None:
        _load(name).add_parser(subparsers)
    else:
        for command, text in COMMANDS.items():
            subparsers.add_parser(command, help=text)
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
