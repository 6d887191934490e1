"""How a user's script is started on a node: argument list and import path."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import PurePath

from sbtrain_perf.request import Plan

# Interpreters of the system: a script that names one of them runs in sbtrain's own Python.
_SYSTEM_FOLDERS = ("/bin", "/usr/bin", "/usr/local/bin")


def trainer_argv(
    script: str, args: Sequence[str], *, shebang: str, python: str
) -> tuple[str, ...]:
    """How a user's script is run, whether or not it may be executed.

    Args:
        shebang: its first line when that starts with "#!", else "".
        python: sbtrain's interpreter; it runs Python scripts, except one whose shebang
            names an interpreter of the user's own, outside the system's folders.
    """
    words = shebang.removeprefix("#!").split(maxsplit=1)
    interpreter = PurePath(words[0]) if words else None
    program = interpreter
    if interpreter is not None and interpreter.name == "env" and len(words) > 1:
        program = PurePath(words[1].removeprefix("-S").split()[0])
    is_python = program is not None and program.name.startswith("python")
    if is_python or PurePath(script).suffix == ".py":
        if is_python and program is not None and program.is_absolute():
            python = python if str(program.parent) in _SYSTEM_FOLDERS else str(program)
        return (python, script, *args)
    if interpreter is None:
        return ("/bin/bash", script, *args)
    # The kernel hands all that follows the interpreter over as one argument.
    return (*(word.strip() for word in words), script, *args)


def import_path(plan: Plan, inherited: str) -> dict[str, str]:
    """Where a copy of a Python script finds the modules that lie beside the original."""
    if not plan.script_dir:
        return {}
    return {"PYTHONPATH": os.pathsep.join(filter(None, (plan.script_dir, inherited)))}
