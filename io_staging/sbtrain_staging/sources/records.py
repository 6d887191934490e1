"""What a node remembers of a source that it holds: its manifest and the hash of every piece.

A record is one file: a line of JSON, the digests of all pieces, the packed manifest. Its
name is the manifest's version: a record that says anything else than its name is damaged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from sbtrain_perf.values import dataclass
from sbtrain_staging.errors import StagingError
from sbtrain_staging.publish import publish_bytes
from sbtrain_staging.sources.hashing import DIGEST_BYTES
from sbtrain_staging.sources.manifest import Manifest

_CONTENT = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line of a record.

    Attributes:
        content: the content id, which is the name of the published folder.
        name: the name inside that folder.
        root: the path of the source.
        size_bytes: of the data.
        entries: files, folders and links.
        digests: number of pieces.
    """

    content: str
    name: str
    root: str
    size_bytes: int
    entries: int
    digests: int


def write_record(
    path: Path, manifest: Manifest, content: str, digests: Mapping[int, bytes]
) -> Header:
    header = _header_of(manifest, content, digests=len(digests))
    line = json.dumps(asdict(header), separators=(",", ":")).encode() + b"\n"
    table = b"".join(digests[piece] for piece in range(len(digests)))
    publish_bytes(path, line + table + manifest.to_bytes())
    return header


def _header_of(manifest: Manifest, content: str, *, digests: int) -> Header:
    return Header(
        content=content,
        name=manifest.name,
        root=manifest.root,
        size_bytes=manifest.data_bytes,
        entries=len(manifest),
        digests=digests,
    )


def read_header(path: Path) -> Header:
    """The first line alone, for lists. Raises StagingError where the file is no record."""
    try:
        with path.open("rb") as stream:
            return _header(stream.readline())
    except OSError as error:
        raise StagingError(f"cannot read {path}: {error.strerror}") from None


def read_record(path: Path) -> tuple[Header, Manifest, list[bytes]]:
    """Raises StagingError where the file is no record, or is damaged. Whether the digests are
    those of the copy, the copy tells."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StagingError(f"cannot read {path}: {error.strerror}") from None
    line, _, rest = content.partition(b"\n")
    header = _header(line)
    end = header.digests * DIGEST_BYTES
    digests = [rest[at : at + DIGEST_BYTES] for at in range(0, end, DIGEST_BYTES)]
    manifest = Manifest.from_bytes(rest[end:])
    said = _header_of(manifest, header.content, digests=header.digests)
    if header != said or manifest.version != path.name:
        raise StagingError(f"the record {path} is damaged")
    return header, manifest, digests


def _header(line: bytes) -> Header:
    try:
        header = Header(**json.loads(line))
        if not _CONTENT.fullmatch(header.content) or header.name in ("", ".", ".."):
            raise ValueError("it names no copy")
        if {"/", "\0"} & set(header.name) or min(
            header.size_bytes, header.entries, header.digests
        ) < 0:
            raise ValueError("it cannot be")
    except (ValueError, TypeError, RecursionError) as error:
        raise StagingError(f"a record cannot be read: {error}") from None
    return header
