"""An unfinished copy on one node: begun, taken up again after a crash, finished, published."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from sbtrain_staging.cache.checking import Structure, is_whole, odd_names, unharmed
from sbtrain_staging.cache.journal import Journal, journal_bytes, read_journal
from sbtrain_staging.cache.locks import FileLock
from sbtrain_staging.cache.node_cache import NodeCache, own_folder
from sbtrain_staging.cache.removal import remove_tree
from sbtrain_staging.engine.disk import TreeWriter, stamp
from sbtrain_staging.errors import StagingError
from sbtrain_staging.publish import fsync_folder, publish_bytes
from sbtrain_staging.sources.delta import OlderCopy, inherit
from sbtrain_staging.sources.manifest import Kind, Manifest
from sbtrain_staging.sources.pieces import PieceSet, PieceTable, set_of
from sbtrain_staging.sources.records import write_record

# Up to this many files are flushed one by one; more are flushed with their filesystem.
_FSYNC_FILES_MOST = 64


class PartialCopy:
    """The unfinished copy of one version of a source; used by one process at a time.

    Args:
        structure: what the one file of a part holds between its data.
    """

    def __init__(
        self,
        cache: NodeCache,
        manifest: Manifest,
        table: PieceTable,
        *,
        structure: Structure = (),
    ) -> None:
        self.digests: dict[int, bytes] = {}
        self._cache = cache
        self._manifest = manifest
        self._table = table
        self._structure = structure
        version = manifest.version
        self.folder = cache.partial / version
        self.tree = self.folder / "tree"
        self._lock = FileLock(cache.partial / f"{version}.lock")
        self._descriptor = -1
        self._journal: Journal | None = None

    def try_lock(self) -> bool:
        return self._lock.try_acquire()

    def unlock(self) -> None:
        """Let go; what was copied so far stays for the next attempt."""
        self._close()
        self._lock.release()

    def _close(self) -> None:
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def recover(self) -> None:
        """Find the pieces that an earlier attempt copied, by hashing them again."""
        own_folder(self.folder)
        own_folder(self.tree)
        journal = self.folder / "journal"
        try:
            said = read_journal(journal)
        except OSError:
            remove_tree(journal)
            said = []
        claimed = {piece: found for piece, found in said if piece < len(self._table)}
        self.digests = self._checked(claimed)
        if len(self.digests) < len(said):
            # Readers take the journal's word.
            publish_bytes(journal, journal_bytes(self.digests.items()))

    def _checked(self, claimed: Mapping[int, bytes]) -> dict[int, bytes]:
        """Which of these pieces are there. A file that cannot be mended in place, as it holds
        what it should not or belongs to other copies as well, is removed."""
        found = unharmed(
            self.tree, self._manifest, self._table, claimed, structure=self._structure
        )
        good = dict(found.pieces)
        harmed = {self._table.files[piece] for piece in claimed if piece not in good}
        for index in harmed | set(found.odd_files):
            path = self.tree / os.fsdecode(self._manifest.published_path(index))
            with contextlib.suppress(OSError):
                if index not in found.odd_files and path.lstat().st_nlink == 1:
                    continue
            remove_tree(path)
            for piece in self._table.of_file(index):
                good.pop(piece, None)
        return good

    def begin(self, remains: OlderCopy | None = None) -> None:
        """Make folders and links, and take over what an older copy has unchanged.

        Args:
            remains: a damaged copy of this very version.

        Raises:
            OSError: no space, no quota, no right.
        """
        self._close()
        publish_bytes(self.folder / "manifest", self._manifest.to_bytes())
        self._descriptor = os.open(self.tree, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._journal = Journal(self.folder / "journal")
        self._clear(None)
        for index in self._manifest.of_kind(Kind.FOLDER):
            self._make_folder(index)
            self._clear(index)
        for index in self._manifest.of_kind(Kind.LINK):
            self._make_link(index)
        if remains is not None:
            self._inherit(remains)
        with self._cache.locked():
            older = self._cache.predecessor(self._manifest)
            claimed = {} if older is None else self._linked(older)
        self._take(claimed)

    def _inherit(self, older: OlderCopy) -> None:
        self._take(self._linked(older))

    def _linked(self, older: OlderCopy) -> dict[int, bytes]:
        return inherit(
            older, self._manifest, self._table, tree=self._descriptor, held=self.digests
        )

    def _take(self, claimed: Mapping[int, bytes]) -> None:
        taken = self._checked(claimed)
        if self._journal is not None:
            self._journal.add(taken.items())
        self.digests.update(taken)

    def reserve(self, wanted: PieceSet, *, quota_bytes: int | None) -> None:
        """Make room for the wanted pieces that are missing, and have the filesystem set it
        aside where files are written in parts.

        Raises:
            ScratchError: there is not enough room.
            OSError: no space, no quota, no right.
        """
        table = self._table
        missing = wanted & ~set_of(self.digests, size=len(table))
        with self._cache.locked():
            self._cache.make_room(
                table.bytes_in(missing),
                quota_bytes=quota_bytes,
                needed_entries=len(self._manifest),
            )
        for index in self._manifest.of_kind(Kind.FILE):
            pieces = table.of_file(index)
            if not self._in_parts(index):
                continue
            if not pieces or any(missing >> piece & 1 for piece in pieces):
                self._make_file(index)

    def link(
        self, indexes: Iterable[int], theirs: Path, digests: Mapping[int, bytes]
    ) -> dict[int, bytes]:
        """Link files of another copy on the same filesystem, up to the first that cannot be.

        Args:
            theirs: the folder of the other copy.
            digests: of the pieces that the other copy has.

        Returns:
            Pieces that are there now, with their digests.
        """
        added: dict[int, bytes] = {}
        with contextlib.suppress(OSError, KeyError):
            source = os.open(theirs, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                for index in indexes:
                    found = {piece: digests[piece] for piece in self._table.of_file(index)}
                    self._link(self._manifest.published_path(index), source)
                    added.update(found)
            finally:
                os.close(source)
        if self._journal is not None:
            self._journal.add(added.items())
        self.digests.update(added)
        return added

    def _link(self, path: bytes, source: int) -> None:
        for _ in range(2):
            try:
                os.link(
                    path,
                    path,
                    src_dir_fd=source,
                    dst_dir_fd=self._descriptor,
                    follow_symlinks=False,
                )
            except FileExistsError:
                os.unlink(path, dir_fd=self._descriptor)
            else:
                return

    def _in_parts(self, index: int) -> bool:
        """Whether a file exists before its data comes: empty, sparse or of several pieces."""
        pieces = self._table.of_file(index)
        return len(pieces) != 1 or not self._table.is_whole_file(pieces[0], self._manifest)

    def _clear(self, folder: int | None) -> None:
        """Remove from a folder what does not belong there."""
        below = b"" if folder is None else self._manifest.published_path(folder) + b"/"
        base = os.fsencode(self.tree)
        for name in list(odd_names(base, self._manifest, folder)):
            remove_tree(self.tree / os.fsdecode(below + name))

    def _make_folder(self, index: int) -> None:
        path = self._manifest.published_path(index)
        try:
            os.mkdir(path, 0o700, dir_fd=self._descriptor)
        except FileExistsError:
            os.chmod(path, 0o700, dir_fd=self._descriptor)

    def _make_link(self, index: int) -> None:
        path = self._manifest.published_path(index)
        with contextlib.suppress(FileNotFoundError):
            if os.readlink(path, dir_fd=self._descriptor) == self._manifest.targets[index]:
                return
            os.unlink(path, dir_fd=self._descriptor)
        os.symlink(self._manifest.targets[index], path, dir_fd=self._descriptor)

    def _make_file(self, index: int) -> None:
        path = self._manifest.published_path(index)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        if not any(piece in self.digests for piece in self._table.of_file(index)):
            with contextlib.suppress(FileNotFoundError):  # it may be another copy's as well
                os.unlink(path, dir_fd=self._descriptor)
        descriptor = os.open(path, flags, 0o600, dir_fd=self._descriptor)
        try:
            os.ftruncate(descriptor, self._manifest.sizes_bytes[index])
            for start, length in self._manifest.data_extents(index):
                set_space_aside(descriptor, start, length)
        finally:
            os.close(descriptor)

    def writer(self) -> TreeWriter:
        if self._journal is None:
            raise StagingError("an unfinished copy is written before it was begun")
        return TreeWriter(
            self._manifest, self._table, tree=self._descriptor, journal=self._journal
        )

    def finish(self) -> None:
        """Set the last modes and times, then flush everything to the disk."""
        manifest = self._manifest
        for index in manifest.of_kind(Kind.FILE):
            if self._in_parts(index) or not self._is_stamped(index):
                self._stamp(index)
        for index in manifest.of_kind(Kind.LINK):
            times = (manifest.mtimes_ns[index], manifest.mtimes_ns[index])
            path = manifest.published_path(index)
            os.utime(path, ns=times, dir_fd=self._descriptor, follow_symlinks=False)
        for index in reversed(list(manifest.of_kind(Kind.FOLDER))):
            self._stamp(index)
        self._flush()

    def _is_stamped(self, index: int) -> bool:
        path = self._manifest.published_path(index)
        status = os.lstat(path, dir_fd=self._descriptor)
        mode = stat.S_IMODE(status.st_mode)
        wanted = (self._manifest.modes[index], self._manifest.mtimes_ns[index])
        return (mode, status.st_mtime_ns) == wanted

    def _stamp(self, index: int) -> None:
        path = self._manifest.published_path(index)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._descriptor)
        try:
            stamp(descriptor, self._manifest, index)
        finally:
            os.close(descriptor)

    def _flush(self) -> None:
        if len(self._manifest) > _FSYNC_FILES_MOST:
            sync_filesystem(self._descriptor)
            return
        for index in range(len(self._manifest)):
            if self._manifest.kinds[index] != Kind.LINK:
                path = self._manifest.published_path(index)
                flags = os.O_RDONLY | os.O_CLOEXEC
                descriptor = os.open(path, flags, dir_fd=self._descriptor)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        fsync_folder(self.tree)

    def publish(self, digests: Mapping[int, bytes], *, key: str, until_s: float) -> Path:
        """Make the finished copy visible under its content; pinned for a job."""
        content = self._manifest.content_id(self._table.file_digests(digests))
        record, place = self._cache.record_of(self._manifest), self._cache.data / content
        # Another source, or another version of this one, may have the same content here.
        there = self._is_there(place, digests)
        with self._cache.locked():
            free = not os.path.lexists(place)
            if free:
                write_record(record, self._manifest, content, digests)
            if not there or free:
                self._cache.publish(self.tree, content)
            if not free:
                # Not before: readers take what a record names.
                write_record(record, self._manifest, content, digests)
            self._cache.pin(content, key, until_s)
        remove_tree(self.folder)
        return place / self._manifest.name

    def _is_there(self, place: Path, digests: Mapping[int, bytes]) -> bool:
        table = self._table
        known = [digests[piece] for piece in range(len(table))]
        return os.path.lexists(place) and is_whole(
            place, self._manifest, table, known, structure=self._structure
        )

    def discard(self) -> None:
        remove_tree(self.folder)


def set_space_aside(descriptor: int, start: int, length: int) -> None:
    """Have the filesystem set space aside; a no-op where it cannot."""
    try:
        os.posix_fallocate(descriptor, start, length)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise


def sync_filesystem(descriptor: int) -> None:
    """Flush the filesystem that holds an open file."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
    elif syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
