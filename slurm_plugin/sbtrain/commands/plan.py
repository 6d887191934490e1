"""`sbtrainctl plan`: what `sbtrain` would do with the same words, as a table or JSON.

Takes the words of `sbtrain`, and no script is needed. Works where no Slurm exists.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sbtrain.commands.streams import screen_width
from sbtrain.commands.telling import tell, warn
from sbtrain.options.argv import CommandLine, given, split_command_line
from sbtrain.options.flag_table import FLAGS
from sbtrain.options.script import Script
from sbtrain.options.unknown_options import unknown_options_named
from sbtrain.slurm.command_client import CommandsClient
from sbtrain.submission.lint import Surrounding, lint
from sbtrain.submission.notes import plan_notes, script_notes
from sbtrain.submission.planning import decide, no_plan
from sbtrain.submission.read_call import read_call, surroundings
from sbtrain_perf.table import wrapped

_WHO = "sbtrainctl"
_OWN = {"site": True, "json": False}  # beside sbtrain's; whether each takes a value

_HELP = """\
usage: sbtrainctl plan [--site SITE] [--json] [sbtrain's options] [SCRIPT]

What sbtrain would do with the same words: the candidates of partition, layout and number of \
nodes, what each is predicted to take, and why one is chosen. Submits nothing. Slurm is asked \
what the cluster has, once a day, and not how busy it is: as if it were empty.

The columns are the parts of a run's time: waiting in the queue, bringing the data to the \
nodes (stage), starting the program, the training steps, saving checkpoints, and what \
interruptions lose; then the whole, and the interval that nine of ten such runs should end \
in. Parts that take no time in any row are left out.

The time to bring the data to the nodes stands beside what it would take without: read from \
the shared filesystem by every node at once, or by one after another. Where the site file \
gives a partition no scratch, every node reads the shared filesystem, and is planned so.

  --site SITE  site file, by name or path, as --train-site; one of another cluster is \
planned for as it stands
  --json       print JSON

These two stand anywhere before the script, as all options do.

  sbtrainctl plan --site bluewaters --train-steps 100000
"""


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Exit status: 0, or 3 where nothing fits."""
    line = split_command_line(argv, {**FLAGS, **_OWN})
    if given(line.settings, "help", "usage"):
        lines = (wrapped(one, width=screen_width(), hanging="") for one in _HELP.split("\n"))
        sys.stdout.write("\n".join("\n".join(part) for part in lines))
        return 0
    if given(line.settings, "version"):
        from sbtrain.commands.report import version

        sys.stdout.write(f"sbtrain {version()}\n")
        return 0
    as_json = ("json", None) in line.train
    line = _as_sbtrain_reads_it(line)
    around = surroundings(environ)
    with unknown_options_named(line):
        asked = read_call(line, around, _stand_in(line, around.cwd))
    strict = asked.options.strict
    around_it = Surrounding(cwd=around.cwd, environ=environ)
    found = lint(asked.script, asked.directives, asked.settings, line, around_it)
    warn(list(found), who=_WHO, strict=strict)
    tell(script_notes(asked, line, own={**FLAGS, **_OWN}, who=_WHO), who=_WHO)
    if asked.options.dry_run:
        tell(["--train-dry-run is for sbtrain: no job script is printed here"], who=_WHO)
    outcome = decide(asked, around, CommandsClient(), to_run=False)
    warn(outcome.warnings, who=_WHO, strict=strict)
    if outcome.decision.chosen:
        tell(plan_notes(outcome.decision.chosen, asked.settings), who=_WHO)
    from sbtrain_perf.explain import plan_json, plan_table

    if as_json:
        sys.stdout.write(plan_json(outcome.decision, outcome.shape))
    else:
        table = plan_table(outcome.decision, outcome.shape, width=screen_width())
        sys.stdout.write(table)
    return 0 if outcome.decision.chosen else no_plan(outcome.decision).exit_code


def _as_sbtrain_reads_it(line: CommandLine) -> CommandLine:
    """--site is another name of --train-site; the last one counts."""
    train = (("train-site" if name == "site" else name, value) for name, value in line.train)
    return line._replace(train=tuple(flag for flag in train if flag[0] != "json"))


def _stand_in(line: CommandLine, cwd: Path) -> Script | None:
    """A script for a call that names none: nothing is read from standard input here."""
    if line.script is not None or line.wrap is not None:
        return None
    return Script(name="run", folder=cwd, content=b"#!/bin/sh\n", shown="no script")
