"""Processes of our own import what they were installed with: what the user put on PYTHONPATH
for his programs comes last, and no file of the current folder stands for a module.
"""

from __future__ import annotations

import os
import sys

_OURS = ("sbtrain", "sbtrain_jobs", "sbtrain_perf", "sbtrain_staging")


def own_packages_first() -> None:
    """Entries of PYTHONPATH that hold sbtrain itself keep their place."""
    said = os.environ.get("PYTHONPATH")
    if not said:
        return
    users = {os.path.abspath(one) for one in said.split(os.pathsep)}  # noqa: PTH100 - "" too
    last = [one for one in sys.path if os.path.abspath(one) in users and not _holds_us(one)]  # noqa: PTH100
    sys.path[:] = [one for one in sys.path if one not in last] + last


def _holds_us(folder: str) -> bool:
    return any(os.path.isdir(os.path.join(folder, name)) for name in _OURS)  # noqa: PTH112, PTH118
