"""The node cache: finished copies, named by content, shared by all jobs of one user.

    <scratch>/sbtrain-cache-<uid>/
        data/<content>/<name>         finished copies, never changed
        records/<source>-<version>    what is known of a source: manifest and hashes
        partial/<version>/            copies under way; <version>.lock is held by their writer
        pins/<content>/<key>          jobs that count on a copy, and until when
        lock                          held for moments, around changes of the above

A copy is published by one rename, its record before it. A record without its folder, or a
folder without its record, is what a crash or a damage left, and counts for nothing; a folder
that a job counts on stays all the same, a damaged one for as long as there is room.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from sbtrain_perf.values import dataclass
from sbtrain_staging.cache import locks
from sbtrain_staging.cache.private import own_name
from sbtrain_staging.cache.removal import remove_tree
from sbtrain_staging.errors import ScratchError, StagingError
from sbtrain_staging.publish import TEMPORARY_MARK, exchange, fsync_folder, publish_bytes
from sbtrain_staging.sources.manifest import KEY_LETTERS, Manifest, source_key
from sbtrain_staging.sources.records import Header, read_header, read_record

# An unfinished copy of another source is kept this long after its writer died.
KEEP_PARTIAL_S = 3600.0
# What keeps a damaged copy in sight for now; no key comes to this name.
_DAMAGED = "=damaged"
_TRASH_MARK = f"trash{TEMPORARY_MARK}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedCopy:
    """A finished copy.

    Attributes:
        path: where programs find the data.
        record: the record of the source that it was made from.
        used_s: when it was last staged or used, in seconds since 1970.
    """

    header: Header
    path: Path
    record: Path
    used_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCopy:
    """A copy of just the version that was asked for, as an earlier run left it.

    Attributes:
        path: where programs find the data.
        digests: of all pieces, as the record says.
        identity: the same as long as nobody has published it anew.
    """

    path: Path
    digests: tuple[bytes, ...]
    identity: tuple[int, ...]


class NodeCache:
    """The cache below one scratch folder; beside the name that another user took.

    Raises:
        ScratchError: the place belongs to somebody else.
    """

    def __init__(self, scratch: Path) -> None:
        self.named = scratch / f"sbtrain-cache-{os.getuid()}"
        self.root = own_name(self.named)
        self.data = self.root / "data"
        self.records = self.root / "records"
        self.partial = self.root / "partial"
        self.pins = self.root / "pins"

    def prepare(self) -> None:
        """Make the folders; nobody else may look in."""
        with contextlib.suppress(FileExistsError):
            self.root.mkdir(mode=0o700)
        status = self.root.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise ScratchError(
                f"{self.root} is no folder of yours",
                hint="remove it, or give --to another folder",
            )
        for folder in (self.root, self.data, self.records, self.partial, self.pins):
            own_folder(folder)
        lock = self.root / "lock"
        if os.path.lexists(lock) and not stat.S_ISREG(lock.lstat().st_mode):
            remove_tree(lock)

    def mark(self, token: str) -> None:
        """Leave a word that a rank on another node finds if this folder is shared."""
        (self.root / "lock").write_text(token)

    def marked(self) -> str:
        return (self.root / "lock").read_text()

    def can_link_to(self, other: NodeCache) -> bool:
        """Whether hard links from this cache to another one's files work, by trying one."""
        trial = self.partial / f"{_TRASH_MARK}{secrets.token_hex(6)}"
        try:
            os.link(other.root / "lock", trial)
        except OSError:
            return False
        trial.unlink()
        return True

    def locked(self) -> contextlib.AbstractContextManager[None]:
        return locks.held(self.root / "lock")

    def record_of(self, manifest: Manifest) -> Path:
        return self.records / manifest.version

    def copies(self) -> Iterator[CachedCopy]:
        """All finished copies; a content that two sources share comes twice."""
        for record in sorted(self.records.iterdir()):
            try:
                header = read_header(record)
                used_s = (self.data / header.content).stat().st_mtime
            except (StagingError, OSError):
                continue
            path = self.data / header.content / header.name
            yield CachedCopy(header=header, path=path, record=record, used_s=used_s)

    def find(self, manifest: Manifest) -> FoundCopy | None:
        """The finished copy of this version of this source; whether it is unharmed is for
        checking.is_whole to say."""
        record = self.record_of(manifest)
        try:
            header, _, digests = read_record(record)
            place = self.data / header.content
            status, folder = record.stat(), place.lstat()
            if not stat.S_ISDIR(folder.st_mode) or status.st_uid != os.getuid():
                raise StagingError(f"{place} is no copy")
        except (StagingError, OSError):
            remove_tree(record)
            return None
        return FoundCopy(
            path=place / manifest.name,
            digests=tuple(digests),
            identity=(status.st_ino, status.st_mtime_ns, folder.st_ino),
        )

    def disown(self, manifest: Manifest) -> None:
        """Have a copy count for nothing, as it is damaged. Its folder stays in sight of the
        jobs that use it, until it is replaced or its room is needed."""
        record = self.record_of(manifest)
        with contextlib.suppress(StagingError):
            content = read_header(record).content
            self._pin(content, _DAMAGED, time.time() + KEEP_PARTIAL_S)
        remove_tree(record)

    def predecessor(self, manifest: Manifest) -> tuple[Path, Manifest, list[bytes]] | None:
        """The newest finished copy of another version of this source: its folder, its
        manifest and the digests of its pieces."""
        key = source_key(manifest.root)
        mine = self.record_of(manifest)
        found = [copy for copy in self.copies() if copy.record.name.startswith(key)]
        found = [copy for copy in found if copy.record != mine]
        for copy in sorted(found, key=lambda copy: copy.used_s, reverse=True):
            try:
                _, known, digests = read_record(copy.record)
            except StagingError:
                remove_tree(copy.record)
                continue
            return copy.path.parent, known, digests
        return None

    def pin(self, content: str, key: str, until_s: float) -> None:
        """Keep a copy until a time; the caller holds the lock."""
        self._pin(content, quote(key, safe=""), until_s)
        remove_tree(self.pins / content / _DAMAGED)
        with contextlib.suppress(OSError):
            os.utime(self.data / content)

    def _pin(self, content: str, name: str, until_s: float) -> None:
        folder = self.pins / content
        own_folder(folder)
        publish_bytes(folder / name, f"{until_s:.0f}\n".encode())

    def is_pinned(self, content: str) -> bool:
        """Whether any job still counts on a copy; pins that are over are removed."""
        folder = self.pins / content
        pinned = False
        for pin in folder.iterdir() if folder.is_dir() else ():
            try:
                over = float(pin.read_text()) < time.time()
            except (OSError, ValueError):
                over = True
            if over:
                remove_tree(pin)
            else:
                pinned = True
        return pinned

    def unpin(self, key: str) -> None:
        for pin in self.pins.glob(f"*/{quote(key, safe='')}"):
            remove_tree(pin)

    def evict(self, content: str) -> None:
        """Remove a copy: out of sight at once, then from the disk."""
        for record in list(self.records.iterdir()):
            with contextlib.suppress(StagingError):
                if read_header(record).content == content:
                    remove_tree(record)
        self._discard(self.data / content)
        remove_tree(self.pins / content)

    def _discard(self, place: Path) -> None:
        trash = self.partial / f"{_TRASH_MARK}{secrets.token_hex(6)}"
        if place.is_dir() and not place.is_symlink():
            place.chmod(0o700)  # else its own user cannot move it
        with contextlib.suppress(FileNotFoundError):
            place.rename(trash)
        remove_tree(trash)

    def publish(self, tree: Path, content: str) -> None:
        """Give a finished and flushed tree its place; the caller holds the lock. What has
        the place is replaced in one step, so that jobs that use it see no gap."""
        place = self.data / content
        if not os.path.lexists(place):
            tree.rename(place)
        else:
            fresh = self.data / f"{_TRASH_MARK}{secrets.token_hex(6)}"
            tree.rename(fresh)
            exchange(fresh, place)
            self._discard(fresh)
        fsync_folder(self.data)

    def used_bytes(self) -> int:
        """The data of all finished copies, each content once."""
        sizes = {copy.header.content: copy.header.size_bytes for copy in self.copies()}
        return sum(sizes.values())

    def make_room(
        self, needed_bytes: int, *, quota_bytes: int | None, needed_entries: int
    ) -> None:
        """Remove the least recently used copies that no job counts on until there is room,
        and damaged ones.

        The caller holds the lock.

        Raises:
            ScratchError: there is not enough room even so.
        """
        by_age = sorted(self.copies(), key=lambda copy: copy.used_s)
        candidates = [copy.header.content for copy in by_age]
        candidates += [f.name for f in self.data.iterdir() if f.name not in set(candidates)]
        while shortage := self._shortage(needed_bytes, quota_bytes, needed_entries):
            free = next((c for c in candidates if self._is_loose(c)), None)
            if free is None:
                raise ScratchError(
                    f"{self.root} has no room for {needed_bytes} bytes: {shortage}",
                    hint="free space there, raise --quota, stage with --mode shard, or give "
                    "--to another folder",
                )
            candidates = [content for content in candidates if content != free]
            self.evict(free)

    def _is_loose(self, content: str) -> bool:
        damaged = (self.pins / content / _DAMAGED).exists()
        return damaged or not self.is_pinned(content)

    def _shortage(
        self, needed_bytes: int, quota_bytes: int | None, needed_entries: int
    ) -> str | None:
        room = os.statvfs(self.root)
        free_bytes = room.f_bavail * room.f_frsize
        if free_bytes < needed_bytes:
            return f"{free_bytes} are free"
        if room.f_files and room.f_favail < needed_entries:
            return f"{room.f_favail} more files fit, {needed_entries} are needed"
        if quota_bytes is not None and self.used_bytes() + needed_bytes > quota_bytes:
            return f"{self.used_bytes()} of a quota of {quota_bytes} are in use"
        return None

    def sweep(self, *, keep: str, older_than_s: float = KEEP_PARTIAL_S) -> None:
        """Remove what dead runs left; the caller holds the lock.

        Args:
            keep: the version whose unfinished copy is about to be taken up again; those of
                other versions of that source are of no use any more.
        """
        self._sweep_partial(keep, older_than_s)
        known = {copy.header.content for copy in self.copies()}
        for folder in list(self.data.iterdir()):
            if folder.name not in known and not self.is_pinned(folder.name):
                self.evict(folder.name)
        for record in list(self.records.iterdir()):
            if TEMPORARY_MARK in record.name or not self._is_of_use(record):
                remove_tree(record)
        for pins in list(self.pins.iterdir()):
            if not os.path.lexists(self.data / pins.name):
                remove_tree(pins)
            else:
                for pin in pins.glob(f".*{TEMPORARY_MARK}*"):
                    remove_tree(pin)

    def _is_of_use(self, record: Path) -> bool:
        try:
            return (self.data / read_header(record).content).is_dir()
        except StagingError:
            return False

    def _sweep_partial(self, keep: str, older_than_s: float) -> None:
        for found in list(self.partial.iterdir()):
            version = found.name.removesuffix(".lock")
            if version == keep:
                continue
            if found.name.startswith(_TRASH_MARK):
                remove_tree(found)
                continue
            if found.name.endswith(".lock") and not found.is_file():
                remove_tree(found)
            outdated = bool(keep) and version[:KEY_LETTERS] == keep[:KEY_LETTERS]
            with contextlib.suppress(FileNotFoundError):
                if not outdated and time.time() - found.stat().st_mtime < older_than_s:
                    continue
            self.drop_partial(version)

    def drop_partial(self, version: str) -> None:
        """Remove an unfinished copy, unless its writer is alive."""
        lock = locks.FileLock(self.partial / f"{version}.lock")
        if lock.try_acquire():
            remove_tree(self.partial / version)
            lock.release()


def own_folder(folder: Path) -> None:
    """Make sure that a name of the cache is a folder of this user's, open to nobody else."""
    with contextlib.suppress(FileNotFoundError):
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            remove_tree(folder)
        elif stat.S_IMODE(status.st_mode) != 0o700:
            folder.chmod(0o700)
    folder.mkdir(mode=0o700, exist_ok=True)
