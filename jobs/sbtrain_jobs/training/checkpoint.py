"""The store of a run's checkpoints: whole or not there, whatever dies while they are written.

``<folder>/step-<S>/`` holds what the script saved and the manifest of that. A checkpoint is
written aside, flushed to disk (files, then folders), renamed, and its entry flushed. A
reader takes only what agrees with its manifest, so that a torn or damaged one is passed over
for the one before it. Names that start with a dot are unfinished work and never read;
``damaged-step-<S>`` was found damaged and set aside: it counts for nothing any more.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from sbtrain_jobs.errors import CheckpointError
from sbtrain_jobs.training.manifest import (
    MANIFEST,
    CheckpointManifest,
    DamagedError,
    read_manifest,
    seal,
    verify,
)
from sbtrain_perf.values import dataclass
from sbtrain_staging.publish import (
    TEMPORARY_MARK,
    fsync_folder,
    publish_path,
    temporary_beside,
)

_log = logging.getLogger("sbtrain.checkpoint")

LEFTOVER_AFTER_S = 3600.0  # unfinished work that nobody touched for so long is given up
MOST_SET_ASIDE = 4  # damaged ones that stay for somebody to look at; older ones go
_PREFIX = "step-"
_STEP = re.compile(r"step-(0|[1-9]\d{0,17})", re.ASCII)
_SET_ASIDE = re.compile(r"damaged-step-(\d+)(\.\d+)?", re.ASCII)
_TRIAL_BYTES = 1 << 16  # enough that a full disk shows
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EROFS, errno.EACCES, errno.EPERM)
_IN_THE_WAY = (errno.EEXIST, errno.ENOTDIR)
_TAKEN = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)

Save = Callable[[Path], None]  # writes the state into the folder it gets


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A published checkpoint; path is its folder, size_bytes the sum of its files."""

    step: int
    path: Path
    size_bytes: int


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
        self._trusted: set[int] = set()  # verified or written here, up to the last written
        self._looked = False
        self._removable: set[int] = set()  # of the first look, or written here

    def steps(self) -> tuple[int, ...]:
        """Steps that have a published checkpoint, oldest first; none of them verified."""
        found = (_STEP.fullmatch(name) for name in self._names())
        return tuple(sorted(int(name[1]) for name in found if name))

    def newest_valid(
        self, *, up_to: int | None = None, set_aside: bool = False
    ) -> Checkpoint | None:
        """The newest checkpoint whose every file has the size and hash of its manifest.

        Every one that is passed over is named in a warning with what is wrong with it.
        None: there is no checkpoint at all.

        Args:
            up_to: later steps are passed over in silence: a rank that comes late must not
                resume from what another one has saved meanwhile.
            set_aside: rename damaged ones that are newer, so that they count for nothing;
                for the one writer of the folder. What merely cannot be read stays.

        Raises:
            CheckpointError: there are checkpoints, and none is whole; or there is none up to
                that step any more.
        """
        while True:
            steps = _up_to(self._look(), up_to)
            wrong: dict[int, DamagedError | OSError] = {}
            for step in reversed(steps):
                try:
                    found = verify(self.path_of(step), step)
                except (DamagedError, OSError) as error:
                    if os.path.lexists(self.path_of(step)):
                        wrong[step] = error
                    continue
                self._trusted.add(step)
                self._pass_over(wrong, set_aside=set_aside)
                return self._checkpoint(found)
            if (
                _up_to(self.steps(), up_to) == steps
            ):  # else a writer published and removed meanwhile
                self._refuse_to_start_anew(wrong)
                if up_to:
                    raise CheckpointError(
                        f"the checkpoint of step {up_to}, from which the others began, is gone",
                        hint="this rank came so late that newer ones have taken its place: "
                        "let all ranks join before they train",
                    )
                return None

    def valid(self, step: int) -> Checkpoint | None:
        """The checkpoint of `step` if it is whole; a warning says why it is not."""
        try:
            found = verify(self.path_of(step), step)
        except (DamagedError, OSError) as error:
            self._pass_over({step: error}, set_aside=False)
            return None
        self._trusted.add(step)
        return self._checkpoint(found)

    def published(self, step: int) -> Checkpoint | None:
        """The checkpoint of `step` if it is there in full size; hashes are not read."""
        try:
            return self._checkpoint(read_manifest(self.path_of(step), step))
        except (DamagedError, OSError):
            return None

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
            self._look()
            temporary = temporary_beside(self.path_of(step))
            try:
                temporary.mkdir(mode=0o700)
                save(temporary)
                published = self._publish(temporary, seal(temporary, step))
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        except OSError as error:
            raise _explained(error, f"cannot save step {step} in {self.folder}") from error
        # What lies beyond this step is not of its line: another rank may not have seen it.
        self._trusted = {old for old in self._trusted if old < step} | {step}
        self._removable.add(step)
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

    def _names(self) -> tuple[str, ...]:
        try:
            return tuple(entry.name for entry in self.folder.iterdir())
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise _explained(error, f"cannot look for checkpoints in {self.folder}") from error

    def _look(self) -> tuple[int, ...]:
        """The steps; those of the first look may be pruned once they are too old."""
        steps = self.steps()
        if not self._looked:
            self._looked = True
            self._removable |= set(steps)
        return steps

    def _checkpoint(self, manifest: CheckpointManifest) -> Checkpoint:
        return Checkpoint(
            step=manifest.step,
            path=self.path_of(manifest.step),
            size_bytes=manifest.size_bytes,
        )

    # -- damage ------------------------------------------------------------------------

    def _pass_over(
        self, wrong: Mapping[int, DamagedError | OSError], *, set_aside: bool
    ) -> set[str]:
        """Say what is wrong; the new names of those that were set aside."""
        aside = set()
        for step, error in wrong.items():
            what, torn = "passed over", isinstance(error, DamagedError)
            if set_aside and torn and (name := self._set_aside(step)) is not None:
                aside.add(name)
                what = f"set aside as {name}"
            _log.warning(
                "sbtrain: checkpoint %s is not whole (%s): %s", self.path_of(step), error, what
            )
        if aside:
            self._drop_set_aside(but=aside)
        return aside

    def _set_aside(self, step: int) -> str | None:
        """Rename a damaged checkpoint; its new name, or None where that is not possible."""
        plain = f"damaged-{_PREFIX}{step}"
        for name in (plain, *(f"{plain}.{number}" for number in range(2, 1000))):
            try:
                if not os.path.lexists(self.folder / name):
                    publish_path(self.path_of(step), self.folder / name)
                    return name
            except OSError as error:
                if error.errno not in _TAKEN:
                    return None
        return None

    def _drop_set_aside(self, *, but: set[str]) -> None:
        """Remove the oldest of those that were set aside before."""
        before = [n for n in self._names() if _SET_ASIDE.fullmatch(n) and n not in but]
        before.sort(key=lambda name: _last_touched(self.folder / name))
        for name in before[: max(0, len(before) + len(but) - MOST_SET_ASIDE)]:
            _log.warning("sbtrain: removed %s, set aside before", self.folder / name)
            _remove(self.folder / name)

    def _refuse_to_start_anew(self, wrong: Mapping[int, DamagedError | OSError]) -> None:
        aside = sorted(name for name in self._names() if _SET_ASIDE.fullmatch(name))
        if not wrong and not aside:
            return
        said = [f"{_PREFIX}{step}: {error}" for step, error in wrong.items()]
        said += [f"{name} was set aside before" for name in aside]
        raise CheckpointError(
            f"no checkpoint in {self.folder} is whole ({'; '.join(said)})",
            hint="bring one back, or start anew from step 0: move that folder away or name "
            "another one with --train-checkpoint",
        )

    # -- publishing --------------------------------------------------------------------

    def _publish(self, temporary: Path, manifest: CheckpointManifest) -> Checkpoint:
        """Rename into place. A whole checkpoint of the same step, published meanwhile by
        another writer, stays; a damaged one is set aside."""
        final = self.path_of(manifest.step)
        for _ in range(10):
            try:
                publish_path(temporary, final)
                return self._checkpoint(manifest)
            except OSError as error:
                if error.errno not in _TAKEN:
                    raise
            try:
                return self._checkpoint(verify(final, manifest.step))
            except (DamagedError, OSError) as error:
                wrong = {manifest.step: DamagedError(str(error))}
                if not self._pass_over(wrong, set_aside=True) and final.exists():
                    break  # else a rival has moved it out of the way
        raise CheckpointError(
            f"{final} holds a damaged checkpoint that cannot be moved out of the way",
            hint="remove that folder by hand",
        )

    def _prune(self) -> None:
        """Keep the newest of this run's own checkpoints that are there in full size, and
        remove what is older than the oldest of them. Own ones are those that it verified or
        wrote; what another writer published since the first look is left to that one."""
        own = []
        for step in sorted(self._trusted, reverse=True):
            try:
                own.append(read_manifest(self.path_of(step), step).step)
            except DamagedError as error:
                self._trusted.discard(step)
                if os.path.lexists(self.path_of(step)) and not self.published(step):
                    self._pass_over({step: error}, set_aside=True)
            except OSError:
                continue
        if len(own) < self._keep:
            return
        for step in {old for old in self._removable if old < own[self._keep - 1]}:
            _remove(self.path_of(step))
            self._removable.discard(step)
            self._trusted.discard(step)


def _remove(folder: Path) -> None:
    """Make a checkpoint invisible in one step, then delete it."""
    aside = temporary_beside(folder)
    try:
        folder.rename(aside)
    except OSError:
        return  # another writer removed it, or it may not be removed: it stays as it is
    if aside.is_dir():
        shutil.rmtree(aside, ignore_errors=True)
    else:
        aside.unlink(missing_ok=True)  # damaged beyond recognition


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


def _up_to(steps: tuple[int, ...], most: int | None) -> tuple[int, ...]:
    return steps if most is None else tuple(step for step in steps if step <= most)
