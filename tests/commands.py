"""Running sbtrain's commands as programs, for tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from preloaded import ours_preloaded
from sbtrain_jobs.process import CommandResult, run_command

_OURS = ("COLUMNS", "SBATCH_", "SLURM_", "SBTRAIN_", "XDG_")
WITHOUT_SLURM = "/usr/sbtrain-test-no-such-folder"
AS_WE_START = os.pathsep.join(path for path in sys.path if path)


def clean_environ(**changes: str) -> dict[str, str]:
    """This environment without what would change what a command does."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_OURS)}
    return {**kept, "PYTHONPATH": AS_WE_START, **changes}


def sbtrain(
    *words: str,
    cwd: Path,
    environ: Mapping[str, str],
    stdin: str | None = None,
    timeout_s: float = 300.0,
) -> CommandResult:
    if stdin is None:
        return _command("sbtrain", words, cwd=cwd, environ=environ, timeout_s=timeout_s)
    line = [str(installed("sbtrain")), *words]
    return run_command(
        line, cwd=cwd, env=environ, stdin=stdin, timeout_s=timeout_s, check="keep"
    )


def sbtrainctl(
    *words: str, cwd: Path, environ: Mapping[str, str], timeout_s: float = 300.0
) -> CommandResult:
    return _command("sbtrainctl", words, cwd=cwd, environ=environ, timeout_s=timeout_s)


def installed(name: str) -> Path:
    return Path(sys.executable).with_name(name)


def _command(
    name: str, words: Sequence[str], *, cwd: Path, environ: Mapping[str, str], timeout_s: float
) -> CommandResult:
    """In a fork that has its modules; anew where Slurm is there, or Python starts otherwise."""
    if "SLURM_CONF" in environ or environ["PYTHONPATH"] != AS_WE_START:
        line = [str(installed(name)), *words]
        return run_command(line, cwd=cwd, env=environ, timeout_s=timeout_s, check="keep")
    return ours_preloaded().run(
        installed(name), *words, cwd=cwd, env=environ, timeout_s=timeout_s
    )
