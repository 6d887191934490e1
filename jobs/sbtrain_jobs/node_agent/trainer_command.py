"""How a user's script is started on a node: argument list and import path; and what the script
itself says of that."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath

from sbtrain_jobs import hooks
from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.run_folder import python_path
from sbtrain_jobs.script_imports import joins
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
    first = [*hooks_of(plan, environ), *([plan.script_dir] if plan.script_dir else [])]
    if not first:
        return {}
    return {"PYTHONPATH": python_path(plan, *first, environ.get("PYTHONPATH", ""))}


def hooks_of(plan: Plan, environ: Mapping[str, str]) -> list[str]:
    """The folder of our hooks, unless they are switched off."""
    return [HOOKS] if plan.hooks and environ.get("SBTRAIN_HOOKS") != "0" else []


def uses_training_api(script: str) -> bool:
    """Whether join() will take the signals; until it does they are ignored. All other scripts
    start as under sbatch: bash cannot trap a signal that it was started to ignore, and
    frameworks take it for one that has its handler.

    Raises:
        LaunchError: this node cannot read it.
    """
    try:
        return joins(Path(script).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise _unreadable(script, error) from error


def first_line(script: str) -> str:
    """The shebang of a script, or nothing.

    Raises:
        LaunchError: this node cannot read it.
    """
    try:
        with Path(script).open("rb") as stream:
            line = stream.readline(512)
    except OSError as error:
        raise _unreadable(script, error) from error
    return line.decode(errors="replace").strip() if line.startswith(b"#!") else ""


def _unreadable(script: str, error: OSError) -> LaunchError:
    return LaunchError(
        f"{socket.gethostname()} cannot read the script {script}: {error.strerror}",
        hint="it must be on a filesystem that all nodes share",
    )
