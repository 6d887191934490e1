"""The environment of ranks that tests start."""

from __future__ import annotations

import os
import sys


def environment() -> dict[str, str]:
    """The environment without what a launcher around the tests may have set."""
    own = ("SLURM", "PMI", "OMPI", "MPI", "SBTRAIN")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    # The nodes of these tests share a filesystem; what they test is moving data.
    never = {"SBTRAIN_STAGE_SHARE": "never"}
    return {**kept, **never, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
