"""Whether a copy on this node still is what its manifest and its hashes say: every name,
every byte, every hole. Nothing that an earlier run left is handed out unlooked at."""

from __future__ import annotations

import contextlib
import os
import stat
import threading
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from sbtrain_staging.sources.hashing import new_hasher
from sbtrain_staging.sources.manifest import Kind, Manifest
from sbtrain_staging.sources.pieces import PieceTable

# What of a file is no data of its source: offset and content, in order; the rest is zeros.
Structure = Sequence[tuple[int, bytes]]

CHECK_THREADS_MOST = 8
_BLOCK_BYTES = 1 << 20
# What one thread takes on at a time: large enough to cost little, small enough to share.
_TURN_BYTES = 32 << 20
_TURN_PIECES = 512
_TICK_S = 0.5
_IS_KIND = {Kind.FILE: stat.S_ISREG, Kind.FOLDER: stat.S_ISDIR, Kind.LINK: stat.S_ISLNK}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unharmed:
    """What of a copy is as it was written.

    Attributes:
        pieces: with their digests.
        odd_files: indexes of files that hold something where they have no data.
    """

    pieces: Mapping[int, bytes]
    odd_files: Collection[int]


def is_whole(
    folder: Path,
    manifest: Manifest,
    table: PieceTable,
    digests: Sequence[bytes],
    *,
    structure: Structure | None = (),
    tick: Callable[[int], None] = lambda _: None,
) -> bool:
    """Whether a copy has every name with its kind, mode and content, files with their time,
    and no other name.

    Args:
        digests: of all pieces.
        tick: called now and then with the bytes that were looked at.
    """
    if not is_shaped(folder, manifest):
        return False
    found = unharmed(
        folder, manifest, table, dict(enumerate(digests)), structure=structure, tick=tick
    )
    return len(found.pieces) == len(table) and not found.odd_files


def is_shaped(folder: Path, manifest: Manifest) -> bool:
    """The same without the content: from metadata alone."""
    base = os.fsencode(folder)
    try:
        own = folder.lstat()
        if not stat.S_ISDIR(own.st_mode) or own.st_uid != os.getuid():
            return False
        if any(odd_names(base, manifest, None)):
            return False
        return all(_is_as_said(base, manifest, index) for index in range(len(manifest)))
    except OSError:
        return False


def _is_as_said(base: bytes, manifest: Manifest, index: int) -> bool:
    path = base + b"/" + manifest.published_path(index)
    status = os.lstat(path)
    kind = Kind(manifest.kinds[index])
    if not _IS_KIND[kind](status.st_mode) or status.st_uid != os.getuid():
        return False
    if kind == Kind.LINK:
        return os.readlink(path) == manifest.targets[index]  # noqa: PTH115
    if stat.S_IMODE(status.st_mode) != manifest.modes[index]:
        return False
    if kind == Kind.FOLDER:
        return not any(odd_names(base, manifest, index))
    wanted = (manifest.sizes_bytes[index], manifest.mtimes_ns[index])
    return (status.st_size, status.st_mtime_ns) == wanted


def odd_names(base: bytes, manifest: Manifest, folder: int | None) -> Iterator[bytes]:
    """The names in one folder of a copy that the manifest does not have, or has otherwise.

    Args:
        base: the folder that holds the copy.
        folder: index of a folder of the copy; None is the base itself.
    """
    where = base if folder is None else base + b"/" + manifest.published_path(folder)
    above = b"" if folder is None else manifest.paths[folder]
    with os.scandir(where) as entries:
        for entry in entries:
            if folder is None:
                index = 0 if entry.name == os.fsencode(manifest.name) else None
            else:
                index = manifest.find(above + b"/" + entry.name if above else entry.name)
            if index is None or manifest.kinds[index] != _kind_of(entry):
                yield entry.name


def _kind_of(entry: os.DirEntry[bytes]) -> Kind | None:
    if entry.is_symlink():
        return Kind.LINK
    if entry.is_dir(follow_symlinks=False):
        return Kind.FOLDER
    return Kind.FILE if entry.is_file(follow_symlinks=False) else None


def unharmed(
    folder: Path,
    manifest: Manifest,
    table: PieceTable,
    claimed: Mapping[int, bytes],
    *,
    structure: Structure | None = (),
    tick: Callable[[int], None] = lambda _: None,
) -> Unharmed:
    """Hash pieces of a copy anew, by several threads.

    Args:
        claimed: the digests that the pieces should have. Others are not looked at.
        structure: what lies between the data of the one file; None: do not look there.
    """
    check = _Check(folder, manifest, table, structure)
    threads = min(CHECK_THREADS_MOST, len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(threads, "check") as pool:
        todo: set[Future[None]] = {
            pool.submit(check.pieces, turn, claimed) for turn in _turns(table, claimed)
        }
        if structure is not None:
            looked_at = {table.files[piece] for piece in claimed}
            for index in manifest.extents:
                if index in looked_at or not table.of_file(index):
                    todo.add(pool.submit(check.gaps, index))
        try:
            while todo:
                done, todo = wait(todo, timeout=_TICK_S)
                for future in done:
                    future.result()
                tick(check.bytes_read)
        finally:
            pool.shutdown(cancel_futures=True)
    return Unharmed(
        pieces={piece: claimed[piece] for piece in claimed if piece in check.good},
        odd_files=check.odd,
    )


def _turns(table: PieceTable, claimed: Mapping[int, bytes]) -> Iterator[list[int]]:
    turn: list[int] = []
    size_bytes = 0
    for piece in sorted(claimed):
        turn.append(piece)
        size_bytes += table.lengths[piece]
        if size_bytes >= _TURN_BYTES or len(turn) == _TURN_PIECES:
            yield turn
            turn, size_bytes = [], 0
    if turn:
        yield turn


class _Check:
    """One look at the content of a copy, shared by its threads."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        table: PieceTable,
        structure: Structure | None,
    ) -> None:
        self.good: set[int] = set()
        self.odd: set[int] = set()
        self.bytes_read = 0
        self._base = os.fsencode(folder)
        self._manifest = manifest
        self._table = table
        self._structure = sorted(structure or ())
        self._starts = [offset for offset, _ in self._structure]
        self._buffers = threading.local()

    @property
    def _buffer(self) -> memoryview:
        if not hasattr(self._buffers, "view"):
            self._buffers.view = memoryview(bytearray(_BLOCK_BYTES))
        view: memoryview = self._buffers.view
        return view

    @contextlib.contextmanager
    def _opened(self, index: int) -> Iterator[int]:
        """Raises OSError where it is no file of this user's with the right size."""
        path = self._base + b"/" + self._manifest.published_path(index)
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(path, flags)
        try:
            status = os.fstat(descriptor)
            if (
                not stat.S_ISREG(status.st_mode)
                or status.st_uid != os.getuid()
                or status.st_size != self._manifest.sizes_bytes[index]
            ):
                raise OSError(f"{path!r} is another file")
            yield descriptor
        finally:
            os.close(descriptor)

    def pieces(self, turn: Sequence[int], claimed: Mapping[int, bytes]) -> None:
        at = 0
        while at < len(turn):
            index = self._table.files[turn[at]]
            end = at
            while end < len(turn) and self._table.files[turn[end]] == index:
                end += 1
            with contextlib.suppress(OSError), self._opened(index) as descriptor:
                for piece in turn[at:end]:
                    if self._hashed(descriptor, piece) == claimed[piece]:
                        self.good.add(piece)
            at = end

    def _hashed(self, descriptor: int, piece: int) -> bytes:
        hasher = new_hasher()
        start, left = self._table.offsets[piece], self._table.lengths[piece]
        while left:
            count = os.preadv(descriptor, [self._buffer[: min(left, _BLOCK_BYTES)]], start)
            if count == 0:
                break
            hasher.update(self._buffer[:count])
            start += count
            left -= count
            self.bytes_read += count
        return hasher.digest()

    def gaps(self, index: int) -> None:
        try:
            with self._opened(index) as descriptor:
                right = all(
                    self._is_filled(descriptor, start, end) for start, end in self._gaps(index)
                )
        except OSError:
            right = False
        if not right:
            self.odd.add(index)

    def _gaps(self, index: int) -> Iterator[tuple[int, int]]:
        at = 0
        for start, length in sorted(self._manifest.extents[index]):
            if at < start:
                yield at, start
            at = start + length
        if at < self._manifest.sizes_bytes[index]:
            yield at, self._manifest.sizes_bytes[index]

    def _is_filled(self, descriptor: int, start: int, end: int) -> bool:
        """Whether a part without data holds its structure, and else zeros."""
        at = start
        place = max(0, bisect_right(self._starts, start) - 1)
        for offset, content in self._structure[place:]:
            if offset >= end:
                break
            stop = min(end, offset + len(content))
            if stop <= at:
                continue
            begin = max(at, offset)
            if not self._is_empty(descriptor, at, begin):
                return False
            if (
                os.pread(descriptor, stop - begin, begin)
                != (content[begin - offset : stop - offset])
            ):
                return False
            at = stop
        return self._is_empty(descriptor, at, end)

    def _is_empty(self, descriptor: int, start: int, end: int) -> bool:
        at = start
        while at < end:
            try:
                at = os.lseek(descriptor, at, os.SEEK_DATA)
            except OSError:
                return True  # a hole up to the end
            hole = min(end, os.lseek(descriptor, at, os.SEEK_HOLE))
            while at < hole:
                found = os.pread(descriptor, min(_BLOCK_BYTES, hole - at), at)
                if found.strip(b"\0"):
                    return False
                at += len(found) or hole
        return True
