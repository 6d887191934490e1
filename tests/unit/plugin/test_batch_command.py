"""How the process ends that a job is."""

from __future__ import annotations

import os
import sys

from sbtrain.commands.batch import EXIT_USAGE
from sbtrain_jobs.process import run_command


def test_the_user_s_pythoninspect_does_not_change_the_exit_status() -> None:
    """With it, Python takes sys.exit for an error."""
    said = run_command(
        [sys.executable, "-P", "-m", "sbtrain.commands.batch"],
        timeout_s=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONINSPECT": "1"},
        check="keep",
    )
    assert (said.returncode, said.stderr.count("\n")) == (EXIT_USAGE, 1)
