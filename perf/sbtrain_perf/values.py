"""The decorator of values, and the types of their fields, from Python 3.9 on.

A program that calls join() runs in its user's interpreter, which may be older than sbtrain's
own. What is loaded there takes `dataclass` from here; it is listed once, as ruff's
per-file-target-version in pyproject.toml. This file imports the standard library alone.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.version_info >= (3, 10):
    from dataclasses import dataclass
    from typing import get_type_hints as field_types
else:
    from sbtrain_perf.python39 import dataclass, field_types

__all__ = ["dataclass", "field_types"]
