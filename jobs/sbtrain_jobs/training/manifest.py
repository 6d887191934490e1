"""The manifest of a checkpoint: what it must hold, written last, and whether it does.

``manifest.json`` has the size and SHA-256 of every file, and a digest of itself.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO

from sbtrain_jobs.errors import CheckpointError
from sbtrain_perf.codec import decode
from sbtrain_perf.values import dataclass
from sbtrain_staging.publish import fsync_folder

MANIFEST = "manifest.json"
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedFile:
    name: str  # relative to the checkpoint's folder
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointManifest:
    step: int
    files: tuple[SavedFile, ...]
    version: int = 1

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class DamagedError(Exception):
    """What is wrong with a checkpoint, in words. An OSError tells that it cannot be read."""


def seal(folder: Path, step: int) -> CheckpointManifest:
    """Write the manifest of what lies in `folder` and flush it all to disk.

    Raises:
        CheckpointError: it holds nothing, or what a checkpoint cannot hold.
    """
    files = tuple(_sealed(path, folder) for path in _walk(folder))
    if not files:
        raise CheckpointError(
            f"the script saved nothing for step {step}",
            hint="the save function must write its files into the folder it is given",
        )
    manifest = CheckpointManifest(step=step, files=files)
    body = asdict(manifest)
    text = json.dumps({**body, "digest": _digest(body)}, indent=1)
    target = folder / MANIFEST
    with target.open("x", encoding="utf-8") as stream:
        stream.write(text + "\n")
        stream.flush()
        os.fsync(stream.fileno())
    for path, _, _ in os.walk(folder, topdown=False):
        fsync_folder(Path(path))
    return manifest


def read_manifest(folder: Path, step: int) -> CheckpointManifest:
    """The manifest of a checkpoint whose files all have their size; hashes are not read.

    Raises:
        DamagedError, OSError: it is not whole, or cannot be read.
    """
    try:
        data = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        digest = data.pop("digest")
        if digest != _digest(data):
            raise DamagedError(f"{MANIFEST} is damaged")
        manifest = decode(CheckpointManifest, data)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise DamagedError(f"{MANIFEST} is missing") from None
    except (ValueError, KeyError, AttributeError, RecursionError) as error:
        raise DamagedError(f"{MANIFEST} is damaged") from error
    if manifest.step != step:
        raise DamagedError(f"{MANIFEST} is that of step {manifest.step}")
    for file in manifest.files:
        try:
            size = (folder / file.name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            raise DamagedError(f"{file.name} is missing") from None
        if size != file.size_bytes:
            raise DamagedError(f"{file.name} has {size} of {file.size_bytes} bytes")
    return manifest


def verify(folder: Path, step: int) -> CheckpointManifest:
    """The manifest of a checkpoint whose every file has its size and hash.

    Raises:
        DamagedError, OSError: it is not whole, or cannot be read.
    """
    manifest = read_manifest(folder, step)
    for file in manifest.files:
        try:
            with (folder / file.name).open("rb") as stream:
                found = _sha256(stream)
        except (FileNotFoundError, IsADirectoryError):
            raise DamagedError(f"{file.name} is missing") from None
        if found != file.sha256:
            raise DamagedError(f"{file.name} is not what was saved: its hash differs")
    return manifest


def _walk(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent, name)


def _sealed(path: Path, folder: Path) -> SavedFile:
    name = path.relative_to(folder).as_posix()
    if name == MANIFEST or path.is_symlink() or not path.is_file():
        raise CheckpointError(
            f"the script saved {name!r}, which a checkpoint cannot hold",
            hint=f"save plain files with names other than {MANIFEST}",
        )
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        digest = _sha256(stream)
        size_bytes = os.fstat(stream.fileno()).st_size
    return SavedFile(name=name, size_bytes=size_bytes, sha256=digest)


def _sha256(stream: BinaryIO) -> str:
    found = hashlib.sha256()
    while piece := stream.read(_PIECE_BYTES):
        found.update(piece)
    return found.hexdigest()


def _digest(body: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
