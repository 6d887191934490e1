"""Looking at a source: makes its manifest from metadata, and sees what changed since."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from sbtrain_staging.errors import SourceError
from sbtrain_staging.ranks.world import Solo, World, together
from sbtrain_staging.sources.links import check_ends, kept_target
from sbtrain_staging.sources.manifest import Entry, Extents, Kind, Manifest, shown_path

# Threads hide the latency of a shared filesystem, where one lstat is one round trip.
SCAN_THREADS = 8
_BATCH = 512
_STAT_BLOCK_BYTES = 512


def scan(source: Path, world: World | None = None, *, holes: bool = True) -> Manifest:
    """List a file or a tree; the ranks share the work, and all get the whole manifest.

    A source that is itself a symbolic link is followed; links inside a tree are kept where
    they lead within it, see links.kept_target.

    Args:
        holes: whether to look for the holes of sparse files, which opens them.

    Raises:
        SourceError: missing, unreadable, or holding something that is no data.
    """
    ranks = world or Solo()

    def look() -> bytes:
        return _root(source).to_bytes() if ranks.rank == 0 else b""

    top = Manifest.from_bytes(together(ranks, look)[0])
    if top.kinds[0] != Kind.FOLDER:
        return top
    with ThreadPoolExecutor(SCAN_THREADS) as threads:
        entries = [*top, *_tree(top, ranks, threads, holes=holes)]
    return Manifest(root=top.root, name=top.name, entries=entries)


def _root(source: Path) -> Manifest:
    """The manifest of the source's own entry."""
    given = Path.cwd() / source
    if given.name in ("", ".."):
        raise SourceError(f"cannot stage {source}", hint="name a file or a folder below it")
    try:
        root = given.resolve(strict=True)
        entry = _entry(os.fsencode(root), b"", holes=True)
    except OSError as error:
        raise source_trouble(os.fsencode(given), error) from None
    if entry.kind == Kind.FILE:
        _check_readable(os.fsencode(root))
    return Manifest(root=str(root), name=given.name, entries=[entry])


def _tree(top: Manifest, world: World, threads: Executor, *, holes: bool) -> Iterator[Entry]:
    """All entries below a folder, level by level: the folders of a level are dealt out
    among the ranks to be listed, then all names that they hold, to be looked at."""
    root = os.fsencode(top.root)
    folders = [b""]
    while folders:
        listed = folders[world.rank :: world.size]

        def names(listed: list[bytes] = listed) -> bytes:
            found = threads.map(lambda path: _names(root, path), listed)
            return b"\0".join(name for listing in found for name in listing)

        level = [name for part in together(world, names) if part for name in part.split(b"\0")]
        share = level[world.rank :: world.size]

        def entries(share: list[bytes] = share) -> bytes:
            batches = [share[at : at + _BATCH] for at in range(0, len(share), _BATCH)]
            found = threads.map(lambda batch: _entries(root, batch, holes=holes), batches)
            below = [entry for batch in found for entry in batch]
            return Manifest(root=top.root, name=top.name, entries=below).to_bytes()

        folders = []
        for packed in together(world, entries):
            part = Manifest.from_bytes(packed)
            yield from part
            folders += [part.paths[index] for index in part.of_kind(Kind.FOLDER)]


def _names(root: bytes, folder: bytes) -> list[bytes]:
    where = root + b"/" + folder if folder else root
    try:
        found = os.listdir(where)  # noqa: PTH208
    except OSError as error:
        raise source_trouble(where, error) from None
    return [folder + b"/" + name for name in found] if folder else found


def _entries(root: bytes, paths: Iterable[bytes], *, holes: bool) -> list[Entry]:
    entries = []
    for path in paths:
        where = root + b"/" + path
        try:
            entries.append(_entry(root, path, holes=holes))
        except OSError as error:
            raise source_trouble(where, error) from None
    return entries


def _entry(root: bytes, path: bytes, *, holes: bool) -> Entry:
    """The manifest's entry of one name.

    Raises:
        SourceError: a device, pipe or socket, or a link to a folder that holds it.
    """
    where = root + b"/" + path if path else root
    status = os.lstat(where)
    target: bytes | None = None
    extents: Extents | None = None
    followed = False
    if stat.S_ISLNK(status.st_mode):
        target = kept_target(root, path)
        followed = target is None
    if followed:
        status = os.stat(where)  # noqa: PTH116
    if target is not None:
        kind = Kind.LINK
    elif stat.S_ISREG(status.st_mode):
        kind = Kind.FILE
        if _looks_closed(status):
            _check_readable(where)
        if holes and status.st_blocks * _STAT_BLOCK_BYTES < status.st_size:
            extents = _data_extents(where, status.st_size)
    elif stat.S_ISDIR(status.st_mode):
        kind = Kind.FOLDER
        if followed:
            check_ends(root, path)
    else:
        raise SourceError(
            f"{shown_path(where)} is a device, pipe or socket, which cannot be staged",
            hint="move it out of the data set",
        )
    return Entry(
        path=path,
        kind=kind,
        size_bytes=status.st_size if kind == Kind.FILE else 0,
        mode=stat.S_IMODE(status.st_mode),
        mtime_ns=status.st_mtime_ns,
        ctime_ns=status.st_ctime_ns,
        target=target or b"",
        extents=extents,
        followed=followed,
    )


def _looks_closed(status: os.stat_result) -> bool:
    """Whether the permission bits alone give this user no right to read."""
    if os.geteuid() == 0:
        return False
    if status.st_uid == os.geteuid():
        return not status.st_mode & stat.S_IRUSR
    if status.st_gid == os.getegid() or status.st_gid in os.getgroups():
        return not status.st_mode & stat.S_IRGRP
    return not status.st_mode & stat.S_IROTH


def _data_extents(where: bytes, size_bytes: int) -> Extents | None:
    """Where a file holds data; None where its filesystem tells of no hole."""
    descriptor = os.open(where, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found: list[tuple[int, int]] = []
        at = 0
        while at < size_bytes:
            try:
                start = os.lseek(descriptor, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:
                    break
                if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):
                    return None
                raise
            at = min(os.lseek(descriptor, start, os.SEEK_HOLE), size_bytes)
            if start < at:
                found.append((start, at - start))
    finally:
        os.close(descriptor)
    return None if found == [(0, size_bytes)] else tuple(found)


def first_change(manifest: Manifest, indices: Iterable[int]) -> int | None:
    """The first of these entries that is no longer as the manifest says."""
    for index in indices:
        try:
            status = manifest.source_status(index)
        except OSError:
            return index
        if not unchanged(manifest, index, status):
            return index
    return None


def unchanged(manifest: Manifest, index: int, status: os.stat_result) -> bool:
    """Whether a name at the source still is what the manifest says."""
    is_file = manifest.kinds[index] == Kind.FILE and index not in manifest.origins
    return (
        status.st_mtime_ns == manifest.mtimes_ns[index]
        and status.st_ctime_ns == manifest.ctimes_ns[index]
        and stat.S_IMODE(status.st_mode) == manifest.modes[index]
        and (not is_file or status.st_size == manifest.sizes_bytes[index])
    )


def changed_error(manifest: Manifest, index: int) -> SourceError:
    return SourceError(
        f"{manifest.shown(index)} changed at the source while it was staged",
        hint="let the program that writes it finish, then stage again",
    )


def source_trouble(path: bytes, error: OSError) -> SourceError:
    """An operating system's error on the source as one of staging's."""
    hints = {
        errno.ENOENT: "check the path; it must be visible on the compute nodes",
        errno.EACCES: "ask for read permission on it and on the folders above",
        errno.EPERM: "ask for read permission on it and on the folders above",
    }
    reason = error.strerror or str(error)
    return SourceError(
        f"cannot read {shown_path(path)}: {reason}", hint=hints.get(error.errno or 0, "")
    )


def _check_readable(path: bytes) -> None:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        raise source_trouble(path, error) from None
