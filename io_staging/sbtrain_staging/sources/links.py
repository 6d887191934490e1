"""Symbolic links in a source: which may be copied as they are, and which lead out of it.

A copy lies elsewhere, so that a link out of the source would dangle there, or lead back to
the shared filesystem. What such a link leads to is staged in its place.
"""

from __future__ import annotations

import errno
import os

from sbtrain_staging.errors import SourceError
from sbtrain_staging.sources.manifest import shown_path

# What a link that leads nowhere fails with: it may stay as it is.
_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def kept_target(root: bytes, path: bytes) -> bytes | None:
    """What the copy of a link says; None where something else is to be staged in its place.

    Links stay as they are where they lead within the source, and where they lead nowhere. A
    detour over a place outside, or the absolute path of the source, becomes a relative path.

    Args:
        root: the source, without links in its own path.
        path: of the link, below it.

    Raises:
        OSError: it cannot be seen where the link leads.
    """
    where = root + b"/" + path
    target = os.readlink(where)  # noqa: PTH115
    try:
        os.stat(where)  # noqa: PTH116
    except OSError as error:
        if error.errno in _NOWHERE:
            return target
        raise
    base = _followed_folder(root, path)
    real, folder = os.path.realpath(where), os.path.realpath(os.path.dirname(where))  # noqa: PTH120
    if not _is_within(base, real):
        return None
    at = folder
    for step in target.split(b"/") if not target.startswith(b"/") else ():
        at = os.path.realpath(at + b"/" + step)
        if not _is_within(base, at):
            break
    else:
        if not target.startswith(b"/"):
            return target
    return os.path.relpath(real, folder)


def check_ends(root: bytes, path: bytes) -> None:
    """Make sure that following a link to a folder comes to an end.

    Raises:
        SourceError: the link leads to a folder that holds it.
    """
    real = os.path.realpath(root + b"/" + path)
    above = root
    for step in path.split(b"/"):
        if _is_within(real, os.path.realpath(above)):
            raise SourceError(
                f"{shown_path(root + b'/' + path)} is a link to a folder that holds it, "
                f"{shown_path(real)}",
                hint="remove the link, or have it lead to what is meant",
            )
        above += b"/" + step


def _followed_folder(root: bytes, path: bytes) -> bytes:
    """The folder that is copied as one and holds a name: the source, or the last folder on
    the way to it that stands in the place of a link."""
    base = at = root
    for step in path.split(b"/")[:-1]:
        at += b"/" + step
        if os.path.islink(at):  # noqa: PTH114
            base = at
    return os.path.realpath(base)


def _is_within(folder: bytes, path: bytes) -> bool:
    return path == folder or path.startswith(folder.rstrip(b"/") + b"/")
