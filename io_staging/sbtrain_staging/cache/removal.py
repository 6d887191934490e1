"""Removing what lies on a node, whatever stands in the way."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path


def remove_tree(folder: Path) -> None:
    """Remove a tree of one's own, also where its folders are read-only; or whatever else has
    that name."""
    if not folder.is_dir() or folder.is_symlink():
        with contextlib.suppress(OSError):
            folder.unlink()
        return
    with contextlib.suppress(OSError):
        folder.chmod(0o700)
    for found, folders, _ in os.walk(folder):
        for name in folders:
            with contextlib.suppress(OSError):
                path = Path(found, name)
                if not path.is_symlink():
                    path.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
