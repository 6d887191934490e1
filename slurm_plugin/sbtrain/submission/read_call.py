"""What a call asks for: its words, its script and what stands in it, read once."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from sbtrain.errors import HeterogeneousError, ScriptError
from sbtrain.launches.launch_lines import launch_lines
from sbtrain.options.argv import CommandLine, heterogeneous, last_value
from sbtrain.options.directives import DirectiveError, Directives, read_directives
from sbtrain.options.flag_table import FLAGS
from sbtrain.options.flags import read_flags
from sbtrain.options.pass_through import kept, shows_gres
from sbtrain.options.script import Script, read_script
from sbtrain.scripts.frameworks import CONVENTIONS, UNKNOWN, Follows, framework_of
from sbtrain.scripts.layouts import layouts_of
from sbtrain.submission.asked import Asked, ask, environment_settings
from sbtrain_perf.errors import RequestError
from sbtrain_perf.request import Launch


class LeftToSbatchError(Exception):
    """Why the call of a script that runs once cannot be planned: sbatch takes it, or says what
    is wrong with it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a call finds around it; stdin reads a script that no word names."""

    cwd: Path
    environ: Mapping[str, str]
    stdin: Callable[[], bytes]


def read_call(line: CommandLine, around: Surroundings, script: Script | None = None) -> Asked:
    """What the call asks for; `script` stands in for the one that the line names.

    Layouts are those that the script can take part in, or that are asked for.

    Raises:
        RequestError: script, directives, flags or data are wrong or missing.
        LeftToSbatchError: sbatch's own matter.
    """
    # Before a script is waited for: a wrong word is named at once.
    said_launch = read_flags(line.train, ()).launch
    named = script is None
    if script is None:
        try:
            script = read_script(
                line.script,
                wrap=line.wrap,
                chdir=last_value(line.settings, "chdir"),
                cwd=around.cwd,
                environ=around.environ,
                stdin=around.stdin,
            )
        except ScriptError as error:
            if said_launch == "script":
                raise LeftToSbatchError(error.message) from error
            raise
    own = launch_lines(script) if named else ()
    does: Launch = "script" if named and (own or not script.is_python) else "ranks"
    try:
        directives = _directives(line, script)
    except (DirectiveError, HeterogeneousError) as error:
        of_sbatch = error.exit_code != RequestError.exit_code
        once = (said_launch or does) == "script"
        if once and (of_sbatch or isinstance(error, HeterogeneousError)):
            raise LeftToSbatchError(error.message) from error
        raise
    if shows_gres((*directives.settings, *environment_settings(around.environ))):
        raise LeftToSbatchError("--gres=help only shows what there is")
    options = read_flags(line.train, directives.train)
    launch = does
    if options.launch is not None and options.launch != "none":
        launch = options.launch
    said = {name for name, _ in (*directives.train, *line.train)}
    if named and "train-layout" not in said:
        layout = layouts_of(script).layout if launch == "ranks" else "allreduce"
        options = dataclasses.replace(options, layout=layout)
    follows = UNKNOWN
    if launch == "ranks" and (named or options.framework):
        follows = framework_of(script, by_user=options.framework)
        if options.layout == "ps":
            _refuse_servers(script, follows)
    return ask(
        line,
        options,
        script,
        directives,
        cwd=around.cwd,
        environ=around.environ,
        launch=launch,
        launches=own,
        follows=follows,
    )


def _refuse_servers(script: Script, follows: Follows) -> None:
    """A world of which every process is a rank has no place for one that serves."""
    if follows.framework in ("tensorflow", "plain") or layouts_of(script).layout != "allreduce":
        return
    raise RequestError(
        f"--train-layout=ps: {script.shown} plays no server, it follows "
        f"{CONVENTIONS[follows.framework]} ({follows.why})",
        hint="leave --train-layout out, and every process is a rank of one world",
    )


def _directives(line: CommandLine, script: Script) -> Directives:
    if line.components > 1:
        raise heterogeneous()
    if line.wrap is not None:  # sbatch reads none in its text
        return Directives()
    return read_directives(script.text, file=script.shown, train_flags=FLAGS)


def surroundings(environ: Mapping[str, str]) -> Surroundings:
    """This process's own. Raises RequestError where the current folder is gone."""
    try:
        cwd = Path.cwd()
    except OSError as error:
        raise RequestError(
            f"the current folder cannot be used: {error.strerror}", hint="cd to another one"
        ) from error
    return Surroundings(cwd=cwd, environ=environ, stdin=_read_stdin)


def _read_stdin() -> bytes:
    if os.isatty(0):
        sys.stderr.write("sbtrain: reading the script from the terminal, up to Ctrl-D\n")
    return kept(0)
