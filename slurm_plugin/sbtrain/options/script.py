"""The user's script: found as sbatch finds it, read, and checked for what sbatch refuses."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from sbtrain.errors import ScriptError

_STDIN = "standard input"


class Script(NamedTuple):
    """name is what sbatch would call the job; folder is where the script lies, or the
    submit folder for one that is no file; shown is its name in messages."""

    name: str
    folder: Path
    content: bytes
    shown: str

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", errors="surrogateescape")

    @property
    def from_stdin(self) -> bool:
        return self.shown == _STDIN

    @property
    def is_python(self) -> bool:
        first = self.content.split(b"\n", 1)[0]
        return self.name.endswith(".py") or (first.startswith(b"#!") and b"python" in first)

    @property
    def uses_sbtrain(self) -> bool:
        """It is Python and imports the training API."""
        if not self.is_python or b"sbtrain" not in self.content:
            return False
        from sbtrain_jobs.script_imports import joins

        return joins(self.text)


def read_script(
    name: str | None,
    *,
    wrap: str | None,
    chdir: str | None,
    cwd: Path,
    environ: Mapping[str, str],
    stdin: Callable[[], bytes],
) -> Script:
    """The script that a command line names.

    Args:
        name: its name; None: `wrap`, or standard input.
        chdir: the value of --chdir, where sbatch looks for a bare name first.

    Raises:
        ScriptError: it cannot be read, or sbatch would not take it.
    """
    if wrap is not None:
        content = f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{wrap}\n".encode()
        return Script(name="wrap", folder=cwd, content=content, shown="--wrap")
    if name is None:
        script = Script(name="sbatch", folder=cwd, content=stdin(), shown=_STDIN)
    else:
        path = _find(name, chdir=chdir, cwd=cwd, environ=environ)
        script = Script(name=path.name, folder=path.parent, content=_content(path), shown=name)
    _check(script)
    return script


def _find(name: str, *, chdir: str | None, cwd: Path, environ: Mapping[str, str]) -> Path:
    """A bare name is looked for in the job's folder, then on PATH, as sbatch does."""
    if "/" not in name:
        folders = [chdir or ".", *environ.get("PATH", "").split(os.pathsep)]
        for folder in folders:
            path = cwd / folder / name
            if path.is_file() and os.access(path, os.R_OK):
                return Path(os.path.normpath(path))
    return Path(os.path.normpath(cwd / name))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        hint = "give the path of the script; options stand before it"
        if isinstance(error, PermissionError):
            hint = "you may not read it: chmod u+r, or ask its owner"
        elif isinstance(error, FileNotFoundError):
            hint += "; the value of an option unknown to sbtrain is written behind '='"
        raise ScriptError(
            f"cannot read the script {path}: {error.strerror}", hint=hint
        ) from error


def _check(script: Script) -> None:
    if not script.content.strip():
        raise ScriptError(f"the script is empty: {script.shown}", hint="write it first")
    if b"\r\n" in script.content:
        raise ScriptError(
            f"the script has DOS line breaks, which sbatch refuses: {script.shown}",
            hint=f"sed -i 's/\\r$//' {script.shown}",
        )
    if b"\0" in script.content:
        raise ScriptError(
            f"the script holds a NUL byte, so it is no text: {script.shown}",
            hint="give the script itself, not a program; --wrap starts a program",
        )
    if not script.content.startswith(b"#!") and not script.name.endswith(".py"):
        raise ScriptError(
            f"this does not look like a batch script: {script.shown}",
            hint="its first line must start with #! and the path of an interpreter, "
            "for instance #!/bin/sh",
        )
