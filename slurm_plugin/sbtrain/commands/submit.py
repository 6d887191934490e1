"""`sbtrain`: plan a distributed training run and hand it to sbatch.

A call in which nothing asks for training becomes sbatch's own. On stdout stands what sbatch
prints, and nothing else; on stderr what sbtrain has to say.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from sbtrain.commands.entry import exit_status
from sbtrain.commands.streams import mend_streams
from sbtrain.options.pass_through import for_sbatch, of_script_that_runs_once
from sbtrain_jobs.errors import CommandMissingError
from sbtrain_jobs.slurm_calls import call_under_way, pass_on

_OURS_SHOW = {"--train-explain", "--train-dry-run"}
# With one of these a wrapper of sbatch has something shown, and does not submit by us.
_SHOWS = _OURS_SHOW | {
    *("-h", "--help", "--usage", "-V", "--version"),
    "--test-only",
}


def main() -> int:
    return run(sys.argv[1:], os.environ)


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Exit status: 0, sbatch's own where sbatch refused, or that of the error."""
    return exit_status(
        lambda: _run(argv, environ),
        who="sbtrain",
        interrupted="interrupted; nothing was submitted",
    )


def _run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    call = call_under_way(environ)
    if call and not _SHOWS & set(argv) - set(call):
        pass_on(call)
    if argv and argv[0] in ("-h", "--help", "--usage") and not _stands_for_sbatch():
        mend_streams()
        return _help()
    alone = for_sbatch(argv, environ)
    if alone is not None:
        return _hand_on(alone)
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    mend_streams()
    from sbtrain.errors import SbatchUsageError, ScriptError
    from sbtrain.options.argv import given, split_command_line
    from sbtrain.options.flag_table import FLAGS

    try:
        line = split_command_line(argv, FLAGS)
    except (SbatchUsageError, ScriptError) as error:
        theirs = () if _OURS_SHOW & set(argv) else of_script_that_runs_once(argv)
        if not theirs:
            raise
        sys.stderr.write(f"sbtrain: warning: {error.message}: sbatch gets the call as it is\n")
        return _hand_on(theirs)
    if given(line.settings, "help", "usage"):
        return _help()
    from sbtrain.commands.planned import plan_and_submit

    status = plan_and_submit(line, environ)
    return _hand_on(line.without_ours) if status is None else status


def _hand_on(words: Sequence[str]) -> int:
    """Become sbatch. Where there is none, --version tells sbtrain's own.

    Raises:
        SlurmMissingError: there is none.
    """
    try:
        pass_on(("sbatch", *words))
    except CommandMissingError as error:
        mend_streams()
        if words and words[0] in ("-V", "--version"):
            from sbtrain.commands.report import version

            sys.stdout.write(f"sbtrain {version()}\n")
            return 0
        from sbtrain.slurm.refusals import slurm_error

        raise slurm_error(error) from error


def _stands_for_sbatch() -> bool:
    return PurePath(sys.argv[0]).name == "sbatch"


def _help() -> int:
    from sbtrain.commands.streams import screen_width
    from sbtrain.options.flag_table import help_text

    sys.stdout.write(help_text(screen_width()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
