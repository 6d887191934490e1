"""Running sbtrain's commands as programs, for tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from sbtrain_jobs.process import CommandResult, run_command

_OURS = ("COLUMNS", "SBATCH_", "SLURM_", "SBTRAIN_", "XDG_")
WITHOUT_SLURM = "/usr/sbtrain-test-no-such-folder"


def clean_environ(**changes: str) -> dict[str, str]:
    """This environment without what would change what a command does."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
    wings = os.pathsep.join(path for path in sys.path if path)
    return {**kept, "PYTHONPATH": wings, **changes}


def sbtrain(
    *words: str,
    cwd: Path,
    environ: Mapping[str, str],
    stdin: str | None = None,
    timeout_s: float = 300.0,
) -> CommandResult:
    return _command("submit", words, cwd=cwd, environ=environ, stdin=stdin, timeout_s=timeout_s)


def sbtrainctl(
    *words: str, cwd: Path, environ: Mapping[str, str], timeout_s: float = 300.0
) -> CommandResult:
    return _command("ctl", words, cwd=cwd, environ=environ, stdin=None, timeout_s=timeout_s)


def _command(
    name: str,
    words: Sequence[str],
    *,
    cwd: Path,
    environ: Mapping[str, str],
    stdin: str | None,
    timeout_s: float,
) -> CommandResult:
    return run_command(
        [sys.executable, "-m", f"sbtrain.commands.{name}", *words],
        cwd=cwd,
        env=environ,
        stdin=stdin,
        timeout_s=timeout_s,
        check="keep",
    )
