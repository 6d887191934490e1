"""The user's list of runs as a command reads it, with a word on what is left out of it."""

from __future__ import annotations

from collections.abc import Mapping

from sbtrain.commands.telling import warn
from sbtrain.runs.run_list import RunList, read_runs
from sbtrain_perf.wording import count


def listed_runs(environ: Mapping[str, str]) -> RunList:
    """The list; says on stderr how many of its lines cannot be read. Raises HomeError."""
    listed = read_runs(environ)
    if listed.left_out:
        lines = count(listed.left_out, "line")
        left_out = f"left out {lines} of {listed.path}: not readable as runs"
        warn([left_out], who="sbtrainctl", strict=False)
    return listed
