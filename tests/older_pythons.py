"""Interpreters of other Python versions, where this machine has them: on PATH, or of pyenv."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from sbtrain_jobs.process import run_command

ROOT = Path(__file__).resolve().parents[1]
WINGS = ("slurm_plugin", "jobs", "perf", "io_staging")
IMPORT_PATH = os.pathsep.join(str(ROOT / wing) for wing in WINGS)


def python_of(version: str) -> str:
    """The interpreter of e.g. "3.9"; skips the test where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [shutil.which(f"python{version}"), *pyenv.glob(f"versions/*/bin/python{version}")]
    ask = "import sys; print('%d.%d' % sys.version_info[:2])"
    for path in filter(None, found):
        said = run_command([str(path), "-c", ask], timeout_s=60, check="keep").stdout
        if said.strip() == version:
            return str(path)
    pytest.skip(f"no Python {version} on PATH and none of pyenv")
