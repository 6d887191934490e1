"""What a source holds: every entry's name, kind, size, mode and times, in columns.

A manifest is made from metadata alone; no file is read. Its fingerprint changes whenever
an entry appears, vanishes or changes its size, mode or times, and so names one version of
one source. Columns keep a million entries under 100 MB.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from enum import IntEnum

from sbtrain_perf.values import dataclass
from sbtrain_staging.errors import StagingError
from sbtrain_staging.sources.hashing import digest

_FORMAT = 1
_ODD = (AttributeError, ArithmeticError, RecursionError)  # what only damage brings about
KEY_LETTERS = 17  # of source_key


class Kind(IntEnum):
    """What an entry is. Devices, pipes and sockets are no data and are refused."""

    FILE = 0
    FOLDER = 1
    LINK = 2


Extents = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One name below a source.

    Attributes:
        path: relative to the source; empty for the source itself.
        size_bytes: length of a file; 0 for the other kinds.
        mode: permission bits.
        target: what a symbolic link says.
        followed: it is what a link leads to, staged in the link's place.
        extents: (offset, length) of the parts of a sparse file that hold data; None where
            the file has no holes.
    """

    path: bytes
    kind: Kind
    size_bytes: int = 0
    mode: int = 0o644
    mtime_ns: int = 0
    ctime_ns: int = 0
    target: bytes = b""
    extents: Extents | None = None
    followed: bool = False


class Manifest:
    """The entries of one source, sorted by path; entry 0 is the source itself.

    Attributes:
        followed: entries that are links at the source, and here what they lead to.
        part: which share of the source this is; empty where it is all of it.
        origins: of files that are put together from parts of the source's file: where each
            of their extents begins in that file. Such files are cut into pieces from the
            start of each extent, so that a piece is the same wherever it lies.
    """

    __slots__ = (
        "ctimes_ns",
        "extents",
        "followed",
        "kinds",
        "modes",
        "mtimes_ns",
        "name",
        "origins",
        "part",
        "paths",
        "root",
        "sizes_bytes",
        "targets",
    )

    def __init__(
        self, *, root: str, name: str, entries: Iterable[Entry], part: str = ""
    ) -> None:
        self.root = root
        self.name = name
        self.part = part
        self.origins: dict[int, tuple[int, ...]] = {}
        self.paths: list[bytes] = []
        self.kinds = bytearray()
        self.sizes_bytes = array("Q")
        self.modes = array("H")
        self.mtimes_ns = array("q")
        self.ctimes_ns = array("q")
        self.targets: dict[int, bytes] = {}
        self.extents: dict[int, Extents] = {}
        self.followed: set[int] = set()
        for entry in sorted(entries, key=lambda entry: entry.path):
            self._append(entry)

    def _append(self, entry: Entry) -> None:
        index = len(self.paths)
        self.paths.append(entry.path)
        self.kinds.append(entry.kind)
        self.sizes_bytes.append(entry.size_bytes)
        self.modes.append(entry.mode)
        self.mtimes_ns.append(entry.mtime_ns)
        self.ctimes_ns.append(entry.ctime_ns)
        if entry.kind == Kind.LINK:
            self.targets[index] = entry.target
        if entry.extents is not None:
            self.extents[index] = entry.extents
        if entry.followed:
            self.followed.add(index)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Entry:
        return Entry(
            path=self.paths[index],
            kind=Kind(self.kinds[index]),
            size_bytes=self.sizes_bytes[index],
            mode=self.modes[index],
            mtime_ns=self.mtimes_ns[index],
            ctime_ns=self.ctimes_ns[index],
            target=self.targets.get(index, b""),
            extents=self.extents.get(index),
            followed=index in self.followed,
        )

    def __iter__(self) -> Iterator[Entry]:
        return (self[index] for index in range(len(self)))

    def find(self, path: bytes) -> int | None:
        """The index of an entry."""
        index = bisect_left(self.paths, path)
        found = index < len(self.paths) and self.paths[index] == path
        return index if found else None

    def of_kind(self, kind: Kind) -> Iterator[int]:
        return (index for index, found in enumerate(self.kinds) if found == kind)

    @property
    def data_bytes(self) -> int:
        """Bytes to move: file sizes without their holes."""
        holes = sum(
            self.sizes_bytes[index] - sum(length for _, length in extents)
            for index, extents in self.extents.items()
        )
        return sum(self.sizes_bytes) - holes

    @property
    def size_bytes(self) -> int:
        """The sum of the lengths of all files."""
        return sum(self.sizes_bytes)

    def data_extents(self, index: int) -> Extents:
        """The parts of a file that hold data."""
        size_bytes = self.sizes_bytes[index]
        whole: Extents = ((0, size_bytes),) if size_bytes else ()
        return self.extents.get(index, whole)

    def source_path(self, index: int) -> bytes:
        return _below(os.fsencode(self.root), self.paths[index])

    def source_status(self, index: int) -> os.stat_result:
        """Raises OSError where the entry is gone."""
        followed = index in self.followed
        return os.stat(self.source_path(index), follow_symlinks=followed)  # noqa: PTH116

    def published_path(self, index: int) -> bytes:
        """The name of an entry below the folder that is published."""
        return _below(os.fsencode(self.name), self.paths[index])

    def shown(self, index: int) -> str:
        """The source path of an entry as one line of text."""
        return shown_path(self.source_path(index))

    @property
    def fingerprint(self) -> str:
        """32 hex digits that name this version of this source."""
        return digest(self._columns()).hex()

    @property
    def version(self) -> str:
        """A file name for this version of this source: first what all versions share."""
        return f"{source_key(self.root)}{self.fingerprint}"

    def content_id(self, file_digests: dict[int, bytes]) -> str:
        """32 hex digits over names, modes, links, sizes, holes, hashes and times of all files.

        Change times and the times of folders are left out: a copy that keeps names, modes
        and modification times is the same content wherever it lies.
        """
        lines = bytearray(_frame(os.fsencode(self.name)))
        for index, path in enumerate(self.paths):
            lines += _frame(path)
            lines += b"%d %d %d " % (
                self.kinds[index],
                self.modes[index],
                self.sizes_bytes[index],
            )
            lines += _frame(self.targets.get(index, b""))
            if index in self.extents:
                lines += _frame(json.dumps(self.extents[index]).encode())
            if index in self.origins:
                lines += _frame(json.dumps(self.origins[index]).encode())
            if self.kinds[index] == Kind.FILE:
                lines += b"%d %s" % (self.mtimes_ns[index], file_digests[index])
        return digest(lines).hex()

    def _columns(self) -> bytes:
        names = b"\0".join(self.paths)
        head: dict[str, object] = {
            "format": _FORMAT,
            "byteorder": sys.byteorder,
            "root": self.root,
            "name": self.name,
            "entries": len(self),
            "names_bytes": len(names),
            "targets": {i: os.fsdecode(target) for i, target in self.targets.items()},
            "extents": self.extents,
        }
        if self.followed:
            head["followed"] = sorted(self.followed)
        if self.part:
            head |= {"part": self.part, "origins": self.origins}
        columns = (self.sizes_bytes, self.modes, self.mtimes_ns, self.ctimes_ns)
        return b"".join(
            (
                json.dumps(head, separators=(",", ":")).encode(),
                b"\n",
                names,
                self.kinds,
                *(column.tobytes() for column in columns),
            )
        )

    def to_bytes(self) -> bytes:
        return zlib.compress(self._columns(), level=1)

    @classmethod
    def from_bytes(cls, packed: bytes) -> Manifest:
        """Raises StagingError where the bytes are not a manifest of this version."""
        try:
            columns = zlib.decompress(packed)
            line, _, rest = columns.partition(b"\n")
            head = json.loads(line)
            if (head["format"], head["byteorder"]) != (_FORMAT, sys.byteorder):
                raise ValueError("another format")
            part = head.get("part", "")
            manifest = cls(root=head["root"], name=head["name"], entries=(), part=part)
            manifest._fill(rest, entries=head["entries"], names_bytes=head["names_bytes"])
            manifest.targets = {int(i): os.fsencode(t) for i, t in head["targets"].items()}
            manifest.extents = {
                int(i): tuple((start, length) for start, length in parts)
                for i, parts in head["extents"].items()
            }
            manifest.followed = set(head.get("followed", ()))
            origins = head.get("origins", {}).items()
            manifest.origins = {int(i): tuple(starts) for i, starts in origins}
        except (zlib.error, LookupError, ValueError, TypeError, *_ODD) as error:
            raise StagingError(f"a manifest cannot be read: {error}") from None
        return manifest

    def _fill(self, rest: bytes, *, entries: int, names_bytes: int) -> None:
        self.paths = rest[:names_bytes].split(b"\0") if entries else []
        at = names_bytes
        self.kinds = bytearray(rest[at : at + entries])
        at += entries
        for column in (self.sizes_bytes, self.modes, self.mtimes_ns, self.ctimes_ns):
            width = entries * column.itemsize
            column.frombytes(rest[at : at + width])
            at += width
        if at != len(rest) or len(self.paths) != entries:
            raise ValueError("cut short")


def source_key(root: str) -> str:
    """How the versions of a source begin."""
    return f"{digest(os.fsencode(root)).hex()[: KEY_LETTERS - 1]}-"


def shown_path(path: bytes) -> str:
    """A path as one printable line, whatever bytes it holds."""
    text = os.fsdecode(path)
    return text if text.isprintable() else ascii(text)[1:-1]


def _below(folder: bytes, path: bytes) -> bytes:
    return folder + b"/" + path if path else folder


def _frame(text: bytes) -> bytes:
    return b"%d:%s" % (len(text), text)
