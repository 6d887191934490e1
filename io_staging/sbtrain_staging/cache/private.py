"""Folders that are this user's own, in places where others may have been first.

A name in a common folder (/tmp/sbtrain-ada) can be taken by anybody: whoever made the folder,
or may write in it, can change or exchange all that lies there. Such a folder is left alone,
and one beside it is used: NAME-1, NAME-2 and so on, the first that is ours or free.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from sbtrain_staging.errors import ScratchError

_NAMES_MOST = 100


class Owner(Enum):
    """Whose a name is."""

    NOBODY = "nobody"
    US = "us"
    ANOTHER = "another"


def owner_of(path: Path) -> Owner:
    """What is root's counts as ours, whoever may write in it: what is made there is looked at
    by itself. A link is followed only where it and what it leads to are ours or root's.

    Raises:
        OSError: it cannot be looked at.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return Owner.NOBODY
    trusted = {0, os.geteuid()}
    if status.st_uid not in trusted:
        return Owner.ANOTHER
    if stat.S_ISLNK(status.st_mode):
        try:
            status = path.stat()
        except FileNotFoundError:
            return Owner.US  # in the way, but ours
    return Owner.US if status.st_uid in trusted else Owner.ANOTHER


def own_name(path: Path) -> Path:
    """This name, or the one beside it that is ours, or else the first that is free.

    Raises:
        ScratchError: too many of them are taken.
    """
    free = None
    for number in range(_NAMES_MOST):
        candidate = path.with_name(f"{path.name}-{number}") if number else path
        owner = owner_of(candidate)
        if owner == Owner.US:
            return candidate
        if owner == Owner.NOBODY:
            free = free or candidate
            if number:
                break
    if free is None:
        raise ScratchError(
            f"{path} belongs to another user, and so do {_NAMES_MOST - 1} names beside it",
            hint="ask for their removal, or give --to another folder",
        )
    return free


def make_own(path: Path, say: Callable[[str], None]) -> Path:
    """Make sure that a folder of ours is there, under this name or one beside it.

    Args:
        say: is told what was found otherwise than it should be.

    Raises:
        ScratchError: another user was first, too often.
        OSError: it cannot be made.
    """
    found = own_name(path)
    if found != path:
        say(f"{path} belongs to another user; {found} is used")
    try:
        found.mkdir(mode=0o700)
        if owner_of(found) != Owner.US:
            found.rmdir()
            raise ScratchError(
                f"a folder that is made as {found} belongs to another user at once",
                hint="root has no rights there: give --to another folder, or stage as a user",
            )
    except FileExistsError as error:
        if owner_of(found) != Owner.US:
            return make_own(path, say)  # somebody was faster
        if not found.is_dir():
            raise NotADirectoryError(
                errno.ENOTDIR, "it is in the way, and no folder", str(found)
            ) from error
        status = found.stat()
        loose = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if loose and status.st_uid == os.geteuid() and not status.st_mode & stat.S_ISVTX:
            found.chmod(stat.S_IMODE(status.st_mode) & ~0o022)
            say(f"{found} could be written by others, and no longer can")
    return found
