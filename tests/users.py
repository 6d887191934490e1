"""Being a user whom permissions bind, also where the tests run as root."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NOBODY = 65534


@contextmanager
def bound_by_permissions() -> Iterator[Path]:
    """A folder of the user's own; root is another user meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix="sbt-user-", dir="/tmp"))
    root = os.geteuid() == 0
    if root:
        os.chown(folder, _NOBODY, _NOBODY)
        os.seteuid(_NOBODY)
    try:
        yield folder
    finally:
        if root:
            os.seteuid(0)
        shutil.rmtree(folder)
