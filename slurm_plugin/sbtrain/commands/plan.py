"""`sbtrainctl plan`: what `sbtrain` would do with the same words, as a table or JSON.

Takes the words of `sbtrain`, and no script is needed. Works where no Slurm exists.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sbtrain.argv import CommandLine, given, split_command_line
from sbtrain.flags import FLAGS
from sbtrain.planning import decide, no_plan, read_call, surroundings
from sbtrain.script import Script
from sbtrain.script_notes import script_notes

_HELP = """\
usage: sbtrainctl plan [--site SITE] [--json] [sbtrain's options] [SCRIPT]

What sbtrain would do with the same words: every candidate of partition, layout and nodes,
what each is predicted to take, and why one is chosen. Submits nothing and asks no Slurm: as
if the cluster were empty.

The time to stage the data stands beside what it would take without: read from the shared
filesystem by every node at once, or by one after another. Where the site states no scratch
for a partition, every node reads the shared filesystem, and is planned so.

  --site SITE   site file, by name or path, as --train-site
  --json        print JSON

  sbtrainctl plan --site bluewaters --train-params 25.6M --train-steps 100000
"""


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Exit status: 0, or 3 where nothing fits."""
    words, as_json = _own(argv)
    line = split_command_line(words, FLAGS)
    if given(line.settings, "help", "usage"):
        sys.stdout.write(_HELP)
        return 0
    around = surroundings(environ)
    asked = read_call(line, around, _stand_in(line, around.cwd))
    for one in asked.directives.dropped:
        sys.stderr.write(f"sbtrainctl: warning: {one.message}\n")
    sys.stderr.writelines(f"sbtrainctl: note: {note}\n" for note in script_notes(asked, line))
    outcome = decide(asked, around)
    for warning in outcome.warnings:
        sys.stderr.write(f"sbtrainctl: warning: {warning}\n")
    from sbtrain_perf.explain import plan_json, plan_table

    show = plan_json if as_json else plan_table
    sys.stdout.write(show(outcome.decision, outcome.shape))
    return 0 if outcome.decision.chosen else no_plan(outcome.decision).exit_code


def _own(argv: Sequence[str]) -> tuple[list[str], bool]:
    """The words for sbtrain, and whether JSON is wanted. Our own stand first."""
    words, as_json = list(argv), False
    site: list[str] = []
    while words:
        name, equals, value = words[0].partition("=")
        if words[0] == "--json":
            as_json = True
        elif name == "--site" and equals:
            site = [f"--train-site={value}"]
        elif name == "--site":
            site = ["--train-site", *words[1:2]]
            del words[1:2]
        else:
            break
        del words[0]
    return [*site, *words], as_json


def _stand_in(line: CommandLine, cwd: Path) -> Script | None:
    """A script for a call that names none: nothing is read from standard input here."""
    if line.script is not None or line.wrap is not None:
        return None
    return Script(name="run", folder=cwd, content=b"#!/bin/sh\n", shown="no script")
