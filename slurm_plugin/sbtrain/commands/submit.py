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
from typing import TYPE_CHECKING

from sbtrain.commands.entry import exit_status
from sbtrain.commands.streams import mend_streams
from sbtrain.options.pass_through import for_sbatch
from sbtrain_jobs.errors import CommandMissingError
from sbtrain_jobs.slurm_calls import call_under_way, pass_on

if TYPE_CHECKING:
    from sbtrain.slurm.client import SlurmClient

# With one of these a wrapper of sbatch has something shown, and does not submit by us.
_SHOWS = {
    *("-h", "--help", "--usage", "-V", "--version"),
    *("--test-only", "--train-explain", "--train-dry-run"),
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
    from sbtrain.options.argv import given, split_command_line
    from sbtrain.options.flag_table import FLAGS

    line = split_command_line(argv, FLAGS)
    if given(line.settings, "help", "usage"):
        return _help()
    from sbtrain.commands.streams import told_while_slow
    from sbtrain.commands.telling import tell, warn
    from sbtrain.options.unknown_options import unknown_options_named
    from sbtrain.submission.job_script import refuse_own
    from sbtrain.submission.notes import launch_note, plan_notes, script_notes
    from sbtrain.submission.planning import decide, no_plan, read_call, surroundings

    around = surroundings(environ)
    with unknown_options_named(line):
        asked = read_call(line, around)
    if asked.options.launch == "none":
        return _hand_on(line.without_ours)
    refuse_own(asked.script)
    strict, talks = asked.options.strict, not given(asked.settings, "quiet")
    dropped = [one.message for one in asked.directives.dropped]
    warn(dropped, who="sbtrain", strict=strict)
    if talks:
        tell(script_notes(asked, line), who="sbtrain")
    client = _client(environ)
    with told_while_slow("weighing plans, and asking Slurm how long they would wait"):
        outcome = decide(asked, around, client)
    asked = outcome.asked
    warn(outcome.warnings, who="sbtrain", strict=strict)
    if talks and outcome.decision.chosen:
        tell([launch_note(asked)], who="sbtrain")
        tell(plan_notes(outcome.decision.chosen, asked.settings), who="sbtrain")
        if not asked.options.explain:
            tell(outcome.decision.risks, who="sbtrain")
    if asked.options.explain:
        from sbtrain.commands.streams import screen_width
        from sbtrain_perf.explain import plan_table

        table = plan_table(outcome.decision, outcome.shape, width=screen_width())
        sys.stdout.write(table)
        return 0 if outcome.decision.chosen else no_plan(outcome.decision).exit_code
    if outcome.decision.chosen is None:
        raise no_plan(outcome.decision)
    from sbtrain.commands.sending import hand_over

    return hand_over(client, asked, outcome.decision.chosen, environ=environ)


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


def _client(environ: Mapping[str, str]) -> SlurmClient:
    """sbtrain itself waits for a job, so that its id is known at once."""
    from sbtrain.slurm.command_client import CommandsClient
    from sbtrain.slurm.outer_job import to_submit_from

    own = to_submit_from(environ)
    return CommandsClient(
        environ={name: value for name, value in own.items() if name != "SBATCH_WAIT"},
        query_timeout_s=20.0,
    )


if __name__ == "__main__":
    sys.exit(main())
