"""What lies on this node: listing copies, and removing them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sbtrain_staging.cache.checking import is_whole
from sbtrain_staging.cache.journal import read_journal
from sbtrain_staging.cache.locks import FileLock
from sbtrain_staging.cache.node_cache import CachedCopy, NodeCache
from sbtrain_staging.errors import StagingError
from sbtrain_staging.reports.progress import shown_bytes
from sbtrain_staging.sources.manifest import Manifest
from sbtrain_staging.sources.pieces import PieceTable
from sbtrain_staging.sources.records import read_record


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyState:
    """One copy on this node, finished or not.

    Attributes:
        state: "ready", "copying" (its writer is alive), "unfinished" (it died) or
            "damaged" (as `clean` found).
        held_bytes: data that is there.
        pinned: whether a job counts on it.
        used_s: when it was last used, in seconds since 1970; 0 where unfinished.
        path: where it is; empty where unfinished.
    """

    source: str
    state: str
    size_bytes: int
    held_bytes: int
    pinned: bool
    used_s: float
    path: str


def copies_on(scratch: Path) -> list[CopyState]:
    """All copies below a scratch folder; none where nothing was ever staged."""
    cache = NodeCache(scratch)
    if not cache.root.is_dir():
        return []
    found = []
    with contextlib.suppress(OSError):  # what is no cache is made one by the next staging
        found += [
            _finished(copy, pinned=cache.is_pinned(copy.header.content))
            for copy in cache.copies()
        ]
        for folder in sorted(cache.partial.iterdir()):
            with contextlib.suppress(OSError, StagingError):
                found.append(_unfinished(folder))
    return found


def _finished(copy: CachedCopy, *, pinned: bool, state: str = "ready") -> CopyState:
    return CopyState(
        source=copy.header.root,
        state=state,
        size_bytes=copy.header.size_bytes,
        held_bytes=copy.header.size_bytes,
        pinned=pinned,
        used_s=copy.used_s,
        path=str(copy.path),
    )


def _unfinished(folder: Path) -> CopyState:
    manifest = Manifest.from_bytes((folder / "manifest").read_bytes())
    table = PieceTable(manifest)
    held = {piece for piece, _ in read_journal(folder / "journal") if piece < len(table)}
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    dead = lock.try_acquire()
    lock.release()
    return CopyState(
        source=manifest.root,
        state="unfinished" if dead else "copying",
        size_bytes=manifest.data_bytes,
        held_bytes=sum(table.lengths[piece] for piece in held),
        pinned=False,
        used_s=0.0,
        path="",
    )


def clean(
    scratch: Path, *, key: str | None, sources: Sequence[Path], everything: bool
) -> list[CopyState]:
    """Let go of what a job counted on, and remove copies that no job counts on.

    Args:
        key: the job whose pins end; its copies stay in the cache for others.
        sources: remove the copies of these, all versions.
        everything: remove all copies.

    Returns:
        What was removed. Copies that a job still counts on stay, unless they are damaged.
    """
    cache = NodeCache(scratch)
    if not cache.root.is_dir():
        return []
    cache.prepare()
    removed = []
    roots = {str(path.resolve()) for path in sources}
    if key is not None:
        with cache.locked():
            cache.unpin(key)
    wanted = [copy for copy in cache.copies() if everything or copy.header.root in roots]
    pinned = {copy.record for copy in wanted if cache.is_pinned(copy.header.content)}
    harmed = {copy.record for copy in wanted if copy.record in pinned and _is_harmed(copy)}
    with cache.locked():
        for copy in wanted:
            if copy.record in harmed or not cache.is_pinned(copy.header.content):
                state = "damaged" if copy.record in harmed else "ready"
                removed.append(_finished(copy, pinned=False, state=state))
                cache.evict(copy.header.content)
        cache.sweep(keep="", older_than_s=0.0 if everything else 3600.0)
    return removed


def _is_harmed(copy: CachedCopy) -> bool:
    try:
        _, manifest, digests = read_record(copy.record)
    except StagingError:
        return True
    # What lies between the rows of a part, its record does not know.
    structure = None if manifest.origins else ()
    table = PieceTable(manifest)
    return not is_whole(copy.path.parent, manifest, table, digests, structure=structure)


def shown_copies(node: str, copies: Sequence[CopyState]) -> str:
    """A table of copies, one a line."""
    if not copies:
        return f"{node}: nothing is staged\n"
    lines = []
    for copy in copies:
        size = shown_bytes(copy.size_bytes)
        if copy.state != "ready":
            size = f"{shown_bytes(copy.held_bytes)} of {size}"
        words = [f"{node}: {copy.source}", copy.state, size]
        if copy.used_s:
            words.append(f"used {shown_age(time.time() - copy.used_s)} ago")
        words += ["in use by a job"] if copy.pinned else []
        words += [copy.path] if copy.path else []
        lines.append(", ".join(words) + "\n")
    return "".join(lines)


def shown_age(seconds: float) -> str:
    for limit_s, unit_s, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < limit_s:
            return f"{seconds / unit_s:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"
