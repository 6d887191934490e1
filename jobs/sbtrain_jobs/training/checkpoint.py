"""The store of a run's checkpoints: whole or not there, whatever dies while they are written.

``<folder>/step-<S>/`` holds what the script saved and ``manifest.json``: the size and
SHA-256 of every file, and a digest of the manifest itself. A checkpoint is written aside,
flushed to disk (files, then folders), renamed, and its entry flushed. A reader takes only
what agrees with its manifest, so that a torn or damaged one is passed over for the one
before it. Names that start with a dot are unfinished work and never read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from sbtrain_jobs.errors import CheckpointError
from sbtrain_perf.codec import decode
from sbtrain_staging.publish import (
    TEMPORARY_MARK,
    fsync_folder,
    publish_path,
    temporary_beside,
)

_log = logging.getLogger("sbtrain.checkpoint")

MANIFEST = "manifest.json"
LEFTOVER_AFTER_S = 3600.0  # unfinished work that nobody touched for so long is given up
_PREFIX = "step-"
_TRIAL_BYTES = 1 << 16  # enough that a full disk shows
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)
_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR)

Save = Callable[[Path], None]  # writes the state into the folder it gets


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A published checkpoint; path is its folder, size_bytes the sum of its files."""

    step: int
    path: Path
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    name: str  # relative to the checkpoint's folder
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Manifest:
    step: int
    files: tuple[_File, ...]
    version: int = 1


class _TornError(Exception):
    """What is wrong with a checkpoint, in words."""


class CheckpointStore:
    """Checkpoints of one run in one folder.

    Args:
        folder: created by the first write.
        keep: whole checkpoints that stay when a newer one is written; at least 2, so that
            damage to the newest never costs the run.
    """

    def __init__(self, folder: str | Path, *, keep: int = 2) -> None:
        if keep < 2:
            raise CheckpointError(
                f"cannot keep {keep} checkpoints",
                hint="keep at least 2: the older one is what a damaged newest falls back on",
            )
        self.folder = Path(folder)
        self._keep = keep

    def steps(self) -> tuple[int, ...]:
        """Steps that have a published checkpoint, oldest first; none of them verified."""
        try:
            names = [entry.name for entry in self.folder.iterdir()]
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _explained(error, f"cannot look for checkpoints in {self.folder}") from error
        numbers = (name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX))
        return tuple(sorted(int(n) for n in numbers if n.isascii() and n.isdigit()))

    def newest_valid(self) -> Checkpoint | None:
        """The newest checkpoint whose every file has the size and hash of its manifest.

        Every one that is passed over is named in a warning with what is wrong with it.
        None: there is no whole checkpoint.
        """
        for step in reversed(self.steps()):
            found = self.valid(step)
            if found is not None:
                return found
        return None

    def valid(self, step: int) -> Checkpoint | None:
        """The checkpoint of `step` if it is whole; a warning says why it is not."""
        folder = self.path_of(step)
        try:
            return _verified(folder, step)
        except (_TornError, OSError) as error:
            _log.warning("sbtrain: checkpoint %s is not whole (%s): passed over", folder, error)
            return None

    def published(self, step: int) -> Checkpoint | None:
        """The checkpoint of `step` if it is there in full size; hashes are not read."""
        try:
            manifest = _manifest_of(self.path_of(step), step)
            _check_sizes(self.path_of(step), manifest)
        except (_TornError, OSError):
            return None
        return _checkpoint(self.path_of(step), manifest)

    def path_of(self, step: int) -> Path:
        return self.folder / f"{_PREFIX}{step}"

    def check(self) -> None:
        """See that a checkpoint can be written here: make a folder with a file, flush,
        rename and remove it.

        Raises:
            CheckpointError: it cannot; the hint is that of a save that fails.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            trials = [temporary_beside(self.folder / "trial") for _ in range(2)]
            try:
                trials[0].mkdir(mode=0o700)
                with (trials[0] / MANIFEST).open("xb") as stream:
                    stream.write(bytes(_TRIAL_BYTES))
                    stream.flush()
                    os.fsync(stream.fileno())
                fsync_folder(trials[0])
                trials[0].rename(trials[1])
                fsync_folder(self.folder)
                shutil.rmtree(trials[1])
            finally:
                for trial in trials:
                    shutil.rmtree(trial, ignore_errors=True)
        except OSError as error:
            raise _explained(error, f"cannot save checkpoints in {self.folder}") from error

    def write(self, step: int, save: Save) -> Checkpoint:
        """Save a checkpoint and publish it at once as a whole, then drop older ones.

        Args:
            save: writes the state's files into the folder it is given.

        Raises:
            CheckpointError: nothing was published, older checkpoints are untouched. The
                hint says what to do when the disk is full or may not be written.
        """
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = temporary_beside(self.path_of(step))
            try:
                temporary.mkdir(mode=0o700)
                save(temporary)
                manifest = _seal(temporary, step)
                published = self._publish(temporary, manifest)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        except OSError as error:
            raise _explained(error, f"cannot save step {step} in {self.folder}") from error
        self._prune()
        return published

    def clean_leftovers(self, *, sole_writer: bool) -> int:
        """Remove unfinished work of writers that are gone.

        Args:
            sole_writer: the caller knows that nobody else writes here, so everything
                unfinished is left over; otherwise only what was untouched for an hour.

        Returns:
            How many were removed.
        """
        removed = 0
        try:
            entries = [e for e in self.folder.iterdir() if TEMPORARY_MARK in e.name]
        except OSError:
            return 0
        for entry in entries:
            if sole_writer or time.time() - _last_touched(entry) > LEFTOVER_AFTER_S:
                shutil.rmtree(entry, ignore_errors=True)
                removed += 1
        return removed

    def _publish(self, temporary: Path, manifest: _Manifest) -> Checkpoint:
        """Rename into place. A whole checkpoint of the same step, published meanwhile by
        another writer, stays; a damaged one makes way."""
        final = self.path_of(manifest.step)
        for _ in range(3):
            try:
                publish_path(temporary, final)
                return _checkpoint(final, manifest)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            try:
                return _verified(final, manifest.step)
            except (_TornError, OSError):
                _remove(final)
        raise CheckpointError(
            f"{final} holds a damaged checkpoint that cannot be moved out of the way",
            hint="remove that folder by hand",
        )

    def _prune(self) -> None:
        """Keep the newest whole checkpoints (by size; hashes are not read) and remove what
        is older than the oldest of them."""
        whole = [step for step in reversed(self.steps()) if self.published(step)]
        if len(whole) < self._keep:
            return
        oldest_kept = whole[self._keep - 1]
        for step in self.steps():
            if step < oldest_kept:
                _remove(self.path_of(step))


def _seal(folder: Path, step: int) -> _Manifest:
    """Write the manifest of what lies in `folder` and flush it all to disk."""
    files = tuple(_sealed(path, folder) for path in _walk(folder))
    if not files:
        raise CheckpointError(
            f"the script saved nothing for step {step}",
            hint="the save function must write its files into the folder it is given",
        )
    manifest = _Manifest(step=step, files=files)
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


def _walk(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        for name in names:
            yield Path(parent, name)


def _sealed(path: Path, folder: Path) -> _File:
    name = path.relative_to(folder).as_posix()
    if name == MANIFEST or path.is_symlink() or not path.is_file():
        raise CheckpointError(
            f"the script saved {name!r}, which a checkpoint cannot hold",
            hint=f"save plain files with names other than {MANIFEST}",
        )
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return _File(name=name, size_bytes=os.fstat(stream.fileno()).st_size, sha256=digest)


def _verified(folder: Path, step: int) -> Checkpoint:
    manifest = _manifest_of(folder, step)
    _check_sizes(folder, manifest)
    for file in manifest.files:
        with (folder / file.name).open("rb") as stream:
            if hashlib.file_digest(stream, "sha256").hexdigest() != file.sha256:
                raise _TornError(f"{file.name} is not what was saved: its hash differs")
    return _checkpoint(folder, manifest)


def _manifest_of(folder: Path, step: int) -> _Manifest:
    try:
        data = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        digest = data.pop("digest")
        if digest != _digest(data):
            raise _TornError(f"{MANIFEST} is damaged")
        manifest = decode(_Manifest, data)
    except FileNotFoundError:
        raise _TornError(f"{MANIFEST} is missing") from None
    except (ValueError, KeyError, AttributeError) as error:
        raise _TornError(f"{MANIFEST} is damaged") from error
    if manifest.step != step:
        raise _TornError(f"{MANIFEST} is that of step {manifest.step}")
    return manifest


def _check_sizes(folder: Path, manifest: _Manifest) -> None:
    for file in manifest.files:
        try:
            size = (folder / file.name).stat().st_size
        except FileNotFoundError:
            raise _TornError(f"{file.name} is missing") from None
        if size != file.size_bytes:
            raise _TornError(f"{file.name} has {size} of {file.size_bytes} bytes")


def _digest(body: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _checkpoint(folder: Path, manifest: _Manifest) -> Checkpoint:
    size = sum(file.size_bytes for file in manifest.files)
    return Checkpoint(step=manifest.step, path=folder, size_bytes=size)


def _remove(folder: Path) -> None:
    """Make a checkpoint invisible in one step, then delete it."""
    aside = temporary_beside(folder)
    try:
        folder.rename(aside)
    except OSError:
        return  # another writer removed it, or it may not be removed: it stays as it is
    shutil.rmtree(aside, ignore_errors=True)


def _last_touched(folder: Path) -> float:
    latest = 0.0
    for path in (folder, *folder.rglob("*")):
        try:
            latest = max(latest, path.stat().st_mtime)
        except OSError:
            continue
    return latest


def _explained(error: OSError, what: str) -> CheckpointError:
    if error.errno in _FULL:
        hint = "free space there or name another folder with --train-checkpoint"
    elif error.errno in _FORBIDDEN:
        hint = "make the folder writable or name another one with --train-checkpoint"
    elif error.errno in _IN_THE_WAY:
        hint = (
            "move the file that is in its place, or name another folder with --train-checkpoint"
        )
    else:
        hint = "look at the filesystem that holds the folder"
    return CheckpointError(f"{what}: {error.strerror or error}", hint=hint)
