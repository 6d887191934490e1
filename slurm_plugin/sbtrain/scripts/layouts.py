"""Which layouts a script can take part in, by what its code does: comments, messages and
strings do not count.

Servers are for scripts that can play one: by `run.tensorflow()`, which follows the plan; by
TensorFlow's own ParameterServerStrategy or Server; or by telling roles apart themselves.
Modules beside a Python script count as far as the script itself imports them. All others get
all-reduce, which any script can take part in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sbtrain.options.script import Script
from sbtrain_perf.request import LayoutChoice

if TYPE_CHECKING:
    from sbtrain.scripts.uses import Uses

# A shell script's own test of the role, at the head of a command, and an end that follows it.
_SHELL_ROLE = re.compile(
    r"""^[^#'"\n]*?(?:
        (?:\[\[?|\btest)[ \t]+"?\$\{?SBTRAIN_ROLE\b[^\s"]*"?[ \t]+!?==?[ \t]+["']?ps\b["']?
        |\bcase[ \t]+"?\$\{?SBTRAIN_ROLE\b(?:(?!\besac\b)[^#])*?\bps["']?[ \t]*[|)]
    )""",
    re.MULTILINE | re.VERBOSE,
)
_SHELL_END = re.compile(
    r"""[ \t]*\]{0,2}[ \t]*;?\s*(?:&&|\|\||then)?\s*\{?\s*
    (?:(?:echo|printf)\b[^;&\n]*(?:>&2)?[;&\n]+\s*)*exit[ \t]+[1-9]""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """layout: what may be planned where the user does not say; why: in words, of the script.
    plain: it plays no server, without doubt."""

    layout: LayoutChoice
    why: str
    plain: bool = False


def layouts_of(script: Script) -> Layouts:
    """Never fails: a script that cannot be read as Python gets all-reduce, and is said so."""
    if not script.is_python:
        tests = _SHELL_ROLE.finditer(script.text)
        if any(not _SHELL_END.match(script.text, one.end()) for one in tests):
            return Layouts(layout="auto", why="tells a server's $SBTRAIN_ROLE from others")
        return Layouts(layout="allreduce", why="is no Python and tests no $SBTRAIN_ROLE for ps")
    from sbtrain.scripts.uses import script_uses

    try:
        return _layouts(script_uses(script))
    except ValueError as error:
        return Layouts(layout="allreduce", why=f"cannot be read as Python ({error})")


def _layouts(uses: Uses) -> Layouts:
    if uses.refuses and not uses.tells:
        return Layouts(layout="allreduce", why="refuses parameter servers", plain=True)
    if uses.follows and uses.tensorflow:
        return Layouts(layout="auto", why="calls run.tensorflow()")
    if uses.serves and not uses.rings:
        return Layouts(layout="ps", why="trains with TensorFlow's parameter servers alone")
    if uses.tells and (uses.serves or not uses.joins):  # in join() servers serve TensorFlow
        return Layouts(layout="auto", why="tells a server's role from others")
    if uses.serves:
        return Layouts(layout="allreduce", why="can do either, and no role decides")
    why = "neither calls run.tensorflow() nor makes a parameter server"
    return Layouts(layout="allreduce", why=why, plain=True)
