"""Reading data while it is still being staged: a reader waits for a file or a part of one,
never for the whole set.

    from sbtrain_staging.readers.reader import open_staged

    data = open_staged(scratch, "/shared/train")
    for name in data.in_order(seed=7):           # the order of `run --order-seed 7`
        with data.open(name) as stream: ...

The order of arrival is known to both sides from the seed of the sampler. Plain paths and
streams serve tf.data, torch.utils.data and h5py alike; open_staged itself imports none.
For rows of HDF5 files see row_batches, tf_rows and torch_rows.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from sbtrain_staging.cache.journal import read_journal
from sbtrain_staging.cache.node_cache import NodeCache
from sbtrain_staging.cache.private import own_name
from sbtrain_staging.errors import SourceError, StagingError
from sbtrain_staging.readers.random_access import RandomAccess
from sbtrain_staging.sources.manifest import Kind, Manifest
from sbtrain_staging.sources.order import epoch_order
from sbtrain_staging.sources.pieces import PieceTable
from sbtrain_staging.sources.records import read_header, read_record

_SHORTEST_NAP_S = 0.001
_LONGEST_NAP_S = 0.05
_BETWEEN_CHECKS_S = 1.0
# How long a copy may have no writer: between two attempts, or before the first.
START_GRACE_S = 60.0


def open_staged(
    scratch: Path | str,
    source: Path | str,
    *,
    epoch: int | None = None,
    timeout_s: float = START_GRACE_S,
) -> StagedData:
    """A source on this node, finished or still coming.

    Args:
        scratch: the node's scratch folder, as given to `run --to`, its fields filled in.
        source: as given to `run`.
        epoch: of the part that is wanted, where parts are dealt anew (`run --epoch`); None
            takes the newest copy of any kind.
        timeout_s: how long staging may take to begin.

    Raises:
        StagingError: staging did not begin in time.
    """
    cache = NodeCache(own_name(Path(scratch)))
    root = os.path.realpath(source)
    deadline = time.monotonic() + timeout_s
    while True:
        for manifest in _known(cache, root):
            if epoch is None or manifest.part.partition(" of=")[0].endswith(f" epoch={epoch}"):
                return StagedData(cache, manifest)
        if time.monotonic() > deadline:
            raise StagingError(
                f"staging of {source} to {scratch} did not begin within {timeout_s:.0f} s",
                hint="start it with `python -m sbtrain_staging run`, beside this program",
            )
        time.sleep(_LONGEST_NAP_S)


def _known(cache: NodeCache, root: str) -> Iterator[Manifest]:
    """What this node has of a source, the newest version first."""
    found: list[tuple[float, Manifest]] = []
    for path in cache.partial.glob("*/manifest") if cache.partial.is_dir() else ():
        try:
            manifest = Manifest.from_bytes(path.read_bytes())
            found.append((path.stat().st_mtime, manifest))
        except (OSError, StagingError):
            continue
    for path in cache.records.iterdir() if cache.records.is_dir() else ():
        try:
            if read_header(path).root == root:
                found.append((path.stat().st_mtime, read_record(path)[1]))
        except (OSError, StagingError):
            continue
    found.sort(key=lambda pair: pair[0], reverse=True)
    return (manifest for _, manifest in found if manifest.root == root)


class StagedFile(RandomAccess):
    """A file of a source, read in any order while it comes."""

    def __init__(self, data: StagedData, name: str) -> None:
        super().__init__(data.size_bytes(name))
        self._data = data
        self._name = name
        self._stream = data.open_growing(name)

    def read_at(self, into: memoryview, offset: int) -> int:
        self._data.wait(self._name, offset=offset, length=len(into))
        return os.preadv(self._stream.fileno(), [into], offset)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


class StagedData:
    """One source on this node; every method that needs data waits for just that data."""

    def __init__(self, cache: NodeCache, manifest: Manifest) -> None:
        self.manifest = manifest
        self._cache = cache
        self._table = PieceTable(manifest)
        self._partial = cache.partial / manifest.version
        self._there: set[int] = set()
        self._records_read = 0
        self._places = {path: index for index, path in enumerate(manifest.paths)}
        self._files = list(manifest.of_kind(Kind.FILE))

    @property
    def names(self) -> list[str]:
        """All files below the source, sorted; the one empty name where it is a file."""
        return [os.fsdecode(self.manifest.paths[index]) for index in self._files]

    def in_order(self, seed: int) -> Iterator[str]:
        """All files in the order of a seed, each as soon as it is there."""
        names = self.names
        for place in epoch_order(len(names), seed):
            self.wait(names[place])
            yield names[place]

    def wait(self, name: str = "", *, offset: int = 0, length: int | None = None) -> None:
        """Wait until a file, or the part of it that is named, is on this node.

        Raises:
            SourceError: there is no such file.
            StagingError: staging ended without it.
        """
        needed = self._pieces(name, offset, length)
        nap_s = _SHORTEST_NAP_S
        missing_since: float | None = None
        checked_at = time.monotonic()
        while not (self._have(needed) and (needed or self._is_made(name))):
            time.sleep(nap_s)
            nap_s = min(_LONGEST_NAP_S, 1.5 * nap_s)
            now = time.monotonic()
            if now - checked_at > _BETWEEN_CHECKS_S:
                checked_at = now
                missing_since = None if self._has_writer() else missing_since or now
                if missing_since is not None and now - missing_since > START_GRACE_S:
                    raise StagingError(
                        f"staging of {self.manifest.root} ended before {name!r} was there",
                        hint="see what the staging step said, then run it again",
                    )

    def path(self, name: str = "") -> Path:
        """Where a file is, once it is complete; staging may move it when it finishes, so
        open it at once, or use open()."""
        self.wait(name)
        return self._candidates(name)[0]

    def open(self, name: str = "") -> BinaryIO:
        """Open a file once it is complete."""
        self.wait(name)
        return self._open(name)

    def open_growing(self, name: str = "") -> BinaryIO:
        """Open a file that may still be coming; wait() for a part before reading it."""
        self._index(name)
        try:
            return self._open(name)
        except StagingError:
            self.wait(name, length=1)
            return self._open(name)

    def file(self, name: str = "") -> StagedFile:
        """A file that may still be coming; every read waits for what it reads."""
        return StagedFile(self, name)

    def _open(self, name: str) -> BinaryIO:
        """Look until a look found it, or none can: staging may move the file between a look
        and the opening. What it does after the lock was asked for is seen by the next look."""
        looks = 0
        while True:
            looks += 1
            moving = looks == 1 or self._is_being_staged()
            for path in self._candidates(name):
                try:
                    return path.open("rb")
                except FileNotFoundError:
                    continue
            if not moving:
                break
            time.sleep(_SHORTEST_NAP_S if looks == 1 else _LONGEST_NAP_S)
        raise StagingError(
            f"{name!r} of {self.manifest.root} is not on this node any more",
            hint="run staging again: the copy was removed",
        )

    def _candidates(self, name: str) -> list[Path]:
        """Where the file can be: published, or in the unfinished copy."""
        below = Path(os.fsdecode(self.manifest.published_path(self._index(name))))
        published = self._published()
        unfinished = self._partial / "tree" / below
        return [unfinished] if published is None else [published / below, unfinished]

    def _published(self) -> Path | None:
        try:
            header = read_header(self._cache.record_of(self.manifest))
        except StagingError:
            return None
        place = self._cache.data / header.content
        return place if place.is_dir() else None

    def _index(self, name: str) -> int:
        index = self._places.get(os.fsencode(name))
        if index is None or self.manifest.kinds[index] != Kind.FILE:
            raise SourceError(f"{self.manifest.root} holds no file {name!r}")
        return index

    def _pieces(self, name: str, offset: int, length: int | None) -> Sequence[int]:
        pieces = self._table.of_file(self._index(name))
        if offset == 0 and length is None:
            return pieces
        end = None if length is None else offset + length
        offsets, lengths = self._table.offsets, self._table.lengths
        return [
            piece
            for piece in pieces
            if (end is None or offsets[piece] < end)
            and offsets[piece] + lengths[piece] > offset
        ]

    def _have(self, needed: Sequence[int]) -> bool:
        if all(piece in self._there for piece in needed):
            return True
        fresh = read_journal(self._partial / "journal", start=self._records_read)
        self._records_read += len(fresh)
        self._there.update(piece for piece, _ in fresh)
        if all(piece in self._there for piece in needed):
            return True
        if self._published() is not None:
            self._there.update(range(len(self._table)))
            return True
        return False

    def _is_made(self, name: str) -> bool:
        """Whether a file that needs no data exists."""
        return any(path.exists() for path in self._candidates(name))

    def size_bytes(self, name: str) -> int:
        """The length that a file will have."""
        return self.manifest.sizes_bytes[self._index(name)]

    def _has_writer(self) -> bool:
        """Whether a staging process works on this source, or has finished it."""
        return self._published() is not None or self._is_being_staged()

    def _is_being_staged(self) -> bool:
        try:
            descriptor = os.open(f"{self._partial}.lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False
