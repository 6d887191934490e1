"""A node's scratch folder: from its template, checked before any time is spent on it."""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

from sbtrain_staging.cache.private import Owner, make_own, own_name, owner_of
from sbtrain_staging.errors import ScratchError
from sbtrain_staging.publish import TEMPORARY_MARK
from sbtrain_staging.ranks.world import node_name, user_name

_FIELD = re.compile(r"%(.)", re.DOTALL)


def expand_template(template: str, environ: Mapping[str, str]) -> Path:
    """The scratch folder of this node.

    %n is the node, %u the user, %j the job, %% a percent sign.

    Raises:
        ScratchError: an unknown field, %j outside a job, or a path that is not absolute.
    """
    fields = {"n": node_name(environ), "u": user_name(environ), "%": "%"}
    if "SLURM_JOB_ID" in environ:
        fields["j"] = environ["SLURM_JOB_ID"]

    def value(match: re.Match[str]) -> str:
        if match[1] not in fields:
            raise ScratchError(
                f"the scratch template {template!r} has no value for %{match[1]}",
                hint="%n: node, %u: user, %j: job (inside a job), %%: a percent sign",
            )
        return fields[match[1]]

    expanded = Path(_FIELD.sub(value, template))
    if not expanded.is_absolute():
        raise ScratchError(f"the scratch folder {expanded} is not an absolute path")
    return expanded


def locate(template: str, environ: Mapping[str, str]) -> Path:
    """Where this node's scratch is, or would be: see prepare.

    Raises:
        ScratchError: as expand_template.
        OSError: it cannot be looked at.
    """
    scratch = expand_template(template, environ)
    fixed = _fixed_part(template)
    found = fixed
    for part in scratch.relative_to(fixed).parts:
        found = own_name(found / part)
    return found


def prepare(
    template: str, environ: Mapping[str, str], say: Callable[[str], None] = lambda _: None
) -> Path:
    """Make sure that this node's scratch is there, is ours, and can be written.

    Only the part of the template from its first field on is created: the part before it is
    the site's, and its absence means that the disk is not mounted. Where another user was
    first to make a folder of that name, one beside it is used.

    Args:
        say: is told where the scratch is not what the template says.

    Raises:
        ScratchError: missing, read-only, full, over quota, forbidden or another user's.
    """
    scratch = expand_template(template, environ)
    node = node_name(environ)
    fixed = _fixed_part(template)
    if not fixed.is_dir():
        what = "is no folder" if os.path.lexists(fixed) else "is not there"
        raise ScratchError(
            f"{fixed} {what} on node {node}",
            hint="is the node's disk mounted? name another scratch folder with --to",
        )
    try:
        if fixed == scratch and owner_of(fixed) == Owner.ANOTHER:
            raise ScratchError(
                f"the scratch folder {fixed} belongs to another user on node {node}, who can "
                "change what lies there",
                hint=f"give --to a folder of your own, such as '{fixed}/%u'",
            )
        parts = scratch.relative_to(fixed).parts
        scratch = fixed
        for part in parts:
            scratch = make_own(scratch / part, lambda line: say(f"{line} on node {node}"))
        probe = scratch / f"{TEMPORARY_MARK}{secrets.token_hex(6)}"
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, b"probe")
        finally:
            os.close(descriptor)
            probe.unlink()
    except NotADirectoryError as error:
        raise scratch_trouble(Path(error.filename or scratch), error, environ) from None
    except OSError as error:
        raise scratch_trouble(scratch, error, environ) from None
    return scratch


def _fixed_part(template: str) -> Path:
    if "%" not in template.replace("%%", ""):
        return Path(template.replace("%%", "%"))
    head = re.split(r"%[^%]", template.replace("%%", "\0"))[0].replace("\0", "%")
    return Path(head if head.endswith("/") else str(Path(head).parent))


def scratch_trouble(where: Path, error: OSError, environ: Mapping[str, str]) -> ScratchError:
    """An operating system's error on scratch as one of staging's."""
    hints = {
        errno.ENOSPC: "free space there, or give --to another folder",
        errno.EDQUOT: "your quota there is used up: remove files, or give --to another folder",
        errno.ENOTDIR: "remove or rename it, or give --to another folder",
        errno.EROFS: "it is mounted read-only; give --to another folder",
        errno.EACCES: "give --to a folder that you may write",
        errno.EPERM: "give --to a folder that you may write",
    }
    reason = error.strerror or str(error)
    return ScratchError(
        f"cannot write {where} on node {node_name(environ)}: {reason}",
        hint=hints.get(error.errno or 0, ""),
    )
