"""How a user's script is started on a node: argument list and import path."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from sbtrain_jobs import hooks
from sbtrain_jobs.run_folder import python_path
from sbtrain_perf.request import Plan

HOOKS = str(Path(hooks.__file__).with_name("path"))
_OF_THE_SYSTEM = ("/bin", "/usr/bin", "/usr/local/bin")  # here no user installs packages


def trainer_argv(
    script: str, args: Sequence[str], *, shebang: str, python: str, environ: Mapping[str, str]
) -> tuple[str, ...]:
    """How a user's script is run, whether or not it may be executed.

    Args:
        shebang: its first line when that starts with "#!", else "": what it names runs it,
            as the kernel would.
        python: sbtrain's interpreter; it runs a Python script without a shebang where the
            user has no environment of his own.
        environ: the job's, which is that of the submission.
    """
    words = shebang.removeprefix("#!").split(maxsplit=1)
    if words:
        # The kernel hands all that follows the interpreter over as one argument.
        return (*(word.strip() for word in words), script, *args)
    if PurePath(script).suffix == ".py":
        return (_users_python(environ) or python, script, *args)
    return ("/bin/bash", script, *args)


def _users_python(environ: Mapping[str, str]) -> str:
    """That of the active virtual or conda environment, or of a module that was loaded."""
    folders = [environ.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX")]
    places = [Path(folder, "bin") for folder in folders if folder]
    path = environ.get("PATH", "").split(os.pathsep)
    first = next((Path(one) for one in path if _is_program(Path(one, "python3"))), None)
    if first is not None and str(first) not in _OF_THE_SYSTEM:
        places.append(first)
    for place in places:
        for name in ("python3", "python"):
            if _is_program(place / name):
                return str(place / name)
    return ""


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def import_path(plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
    """Where a Python script finds our hooks, a copy of one the modules that lie beside the
    original, and, last, any interpreter `join`. environ: the job's."""
    watched = plan.hooks and environ.get("SBTRAIN_HOOKS") != "0"
    first = [HOOKS] * watched + [plan.script_dir] * bool(plan.script_dir)
    if not first:
        return {}
    return {"PYTHONPATH": python_path(plan, *first, environ.get("PYTHONPATH", ""))}
