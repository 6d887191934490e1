"""Reading pieces from a tree and writing them to one. One object serves one lane."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sbtrain_staging.cache.journal import Journal
from sbtrain_staging.engine.schedule import Segment
from sbtrain_staging.errors import SourceError, StagingError, VerificationError
from sbtrain_staging.sources.hashing import Hasher, digest, new_hasher
from sbtrain_staging.sources.manifest import Manifest
from sbtrain_staging.sources.pieces import PieceTable
from sbtrain_staging.sources.scan import changed_error, source_trouble, unchanged


class PieceHasher:
    """Hashes pieces that come in segments, in order."""

    __slots__ = ("_growing",)

    def __init__(self) -> None:
        self._growing: Hasher | None = None

    def take(self, segment: Segment, data: memoryview) -> bytes | None:
        """The digest of the piece where the segment ends it."""
        if segment.start == 0 and segment.ends:
            return digest(data)
        if segment.start == 0 or self._growing is None:
            self._growing = new_hasher()
        self._growing.update(data)
        return self._growing.digest() if segment.ends else None


class OpenFiles:
    """Files that several threads read parts of: opened once, closed when read past."""

    def __init__(self, open_file: Callable[[int], int]) -> None:
        self._open_file = open_file
        self._lock = threading.Lock()
        self._descriptors: dict[int, int] = {}
        self._users: dict[int, int] = {}

    @contextlib.contextmanager
    def use(self, index: int) -> Iterator[int]:
        with self._lock:
            if index not in self._descriptors:
                self.close_idle()
                self._descriptors[index] = self._open_file(index)
                self._users[index] = 0
            self._users[index] += 1
        try:
            yield self._descriptors[index]
        finally:
            with self._lock:
                self._users[index] -= 1

    def close_idle(self) -> None:
        for index in [index for index, users in self._users.items() if not users]:
            os.close(self._descriptors.pop(index))
            del self._users[index]


class TreeReader:
    """Reads segments below a folder; counts what it reads.

    Chunks may be read by several threads at once; they are hashed by one, in order.
    """

    def __init__(self, manifest: Manifest, table: PieceTable) -> None:
        self.bytes_read = 0
        self._manifest = manifest
        self._table = table
        self._files = OpenFiles(self.open_file)
        self._hasher = PieceHasher()
        self._counting = threading.Lock()

    def read_chunk(self, chunk: Sequence[Segment], into: memoryview) -> None:
        """Fill a buffer with the segments."""
        at = 0
        count = 0
        try:
            for segment in chunk:
                part = into[at : at + segment.length]
                at += segment.length
                index = self._table.files[segment.piece]
                offset = self._table.offsets[segment.piece] + segment.start
                if segment.length == self._manifest.sizes_bytes[index]:
                    descriptor = self.open_file(index)
                    try:
                        count += self._fill(descriptor, index, part, offset)
                    finally:
                        os.close(descriptor)
                else:
                    with self._files.use(index) as descriptor:
                        count += self._fill(descriptor, index, part, offset)
        finally:
            with self._counting:
                self.bytes_read += count

    def _fill(self, descriptor: int, index: int, into: memoryview, offset: int) -> int:
        at = 0
        while at < len(into):
            try:
                count = os.preadv(descriptor, [into[at:]], offset + at)
            except OSError as error:
                raise self.trouble(index, error) from None
            if count == 0:
                raise self.ended_early(index)
            at += count
        return at

    def hash_chunk(self, chunk: Sequence[Segment], data: memoryview) -> list[bytes]:
        """The digests of the pieces that end in a chunk; to be called in order."""
        digests = []
        at = 0
        for segment in chunk:
            found = self._hasher.take(segment, data[at : at + segment.length])
            if found is not None:
                self.check_digest(segment.piece, found)
                digests.append(found)
            at += segment.length
        return digests

    def open_file(self, index: int) -> int:
        raise NotImplementedError

    def check_digest(self, piece: int, found: bytes) -> None:
        """Compare with what is known of a piece; a first reading knows nothing."""

    def ended_early(self, index: int) -> StagingError:
        raise NotImplementedError

    def trouble(self, index: int, error: OSError) -> StagingError:
        raise NotImplementedError

    def close(self) -> None:
        self._files.close_idle()


class SourceReader(TreeReader):
    """Reads the shared source; a file that is not as the manifest says is an error."""

    def open_file(self, index: int) -> int:
        path = self._manifest.source_path(index)
        link = 0 if index in self._manifest.followed else os.O_NOFOLLOW
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | link)
        except FileNotFoundError:
            raise changed_error(self._manifest, index) from None
        except OSError as error:
            raise source_trouble(path, error) from None
        if not unchanged(self._manifest, index, os.fstat(descriptor)):
            os.close(descriptor)
            raise changed_error(self._manifest, index)
        return descriptor

    def ended_early(self, index: int) -> SourceError:
        return changed_error(self._manifest, index)

    def trouble(self, index: int, error: OSError) -> SourceError:
        return source_trouble(self._manifest.source_path(index), error)


class CopyReader(TreeReader):
    """Reads a copy on this node's scratch, whose hashes are known."""

    def __init__(
        self,
        manifest: Manifest,
        table: PieceTable,
        *,
        folder: Path,
        known: dict[int, bytes],
    ) -> None:
        super().__init__(manifest, table)
        self._folder = os.fsencode(folder)
        self._known = known

    def _path(self, index: int) -> bytes:
        return self._folder + b"/" + self._manifest.published_path(index)

    def open_file(self, index: int) -> int:
        try:
            return os.open(self._path(index), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError as error:
            raise self.trouble(index, error) from None

    def check_digest(self, piece: int, found: bytes) -> None:
        if self._known.get(piece) != found:
            raise self.ended_early(self._table.files[piece])

    def ended_early(self, index: int) -> VerificationError:
        return VerificationError(
            f"the copy {os.fsdecode(self._path(index))} is damaged",
            hint="stage again: what is damaged is then fetched anew",
        )

    def trouble(self, index: int, error: OSError) -> StagingError:
        return VerificationError(
            f"the copy {os.fsdecode(self._path(index))} cannot be read: {error.strerror}",
            hint="stage again: what is damaged is then fetched anew",
        )


class TreeWriter:
    """Writes segments into an unfinished copy, checks their hashes and journals pieces."""

    def __init__(
        self, manifest: Manifest, table: PieceTable, *, tree: int, journal: Journal
    ) -> None:
        self.digests: dict[int, bytes] = {}
        self.bytes_written = 0
        self._manifest = manifest
        self._table = table
        self._tree = tree
        self._journal = journal
        self._file = -1
        self._descriptor = -1
        self._hasher = PieceHasher()

    def write_chunk(
        self, chunk: Sequence[Segment], data: memoryview, digests: Sequence[bytes], giver: str
    ) -> None:
        """Write the segments of a chunk.

        Args:
            digests: of the pieces that end in it, as the first reader found them.
            giver: node that sent the chunk; empty where this rank read it and hashed it.
        """
        told = iter(digests)
        ended = []
        at = 0
        for segment in chunk:
            part = data[at : at + segment.length]
            at += segment.length
            found = self._hasher.take(segment, part) if giver else None
            self._write(segment, part)
            if segment.ends:
                expected = next(told)
                if giver and found != expected:
                    raise self._damaged(segment, giver)
                ended.append((segment.piece, expected))
        self._journal.add(ended)
        self.digests.update(ended)
        self.bytes_written += at

    def _damaged(self, segment: Segment, giver: str) -> VerificationError:
        path = self._manifest.shown(self._table.files[segment.piece])
        return VerificationError(
            f"{path} arrived damaged from node {giver}",
            hint="stage again; if it comes back, have that node's network checked",
        )

    def _write(self, segment: Segment, data: memoryview) -> None:
        index = self._table.files[segment.piece]
        if index != self._file:
            self.close()
            self._descriptor = self._open(index, segment.piece)
            self._file = index
        offset = self._table.offsets[segment.piece] + segment.start
        at = 0
        while at < len(data):
            at += os.pwrite(self._descriptor, data[at:], offset + at)
        if segment.ends and self._table.is_whole_file(segment.piece, self._manifest):
            self._finish(index)

    def _open(self, index: int, piece: int) -> int:
        path = self._manifest.published_path(index)
        if not self._table.is_whole_file(piece, self._manifest):
            return os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._tree)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            return os.open(path, flags, 0o600, dir_fd=self._tree)
        except FileExistsError:
            os.unlink(path, dir_fd=self._tree)
            return os.open(path, flags, 0o600, dir_fd=self._tree)

    def _finish(self, index: int) -> None:
        stamp(self._descriptor, self._manifest, index)
        self.close()

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = self._file = -1


def stamp(descriptor: int, manifest: Manifest, index: int) -> None:
    """Give an open file or folder the mode and the time of its source."""
    os.fchmod(descriptor, manifest.modes[index])
    mtime_ns = manifest.mtimes_ns[index]
    os.utime(descriptor, ns=(mtime_ns, mtime_ns))
