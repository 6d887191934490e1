"""Taking over from an older copy of a source what did not change since, by hard links.

What is linked here is claimed, not known: the older copy may have been damaged since. It is
for the caller to hash it before it counts.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from sbtrain_staging.sources.manifest import Kind, Manifest
from sbtrain_staging.sources.pieces import PieceTable

OlderCopy = tuple[Path, Manifest, Sequence[bytes]]  # its folder, and what is known of it


def inherit(
    older: OlderCopy,
    manifest: Manifest,
    table: PieceTable,
    *,
    tree: int,
    held: dict[int, bytes],
) -> dict[int, bytes]:
    """Link unchanged files of an older copy into an unfinished one.

    Args:
        older: folder, manifest and digests of the older copy; of the same version where that
            is damaged.
        tree: open folder of the unfinished copy; its folders are there already.
        held: pieces that it has already.

    Returns:
        Pieces of files that were linked, with the digests that they should have.
    """
    folder, known, digests = older
    known_table = PieceTable(known)
    places = {known.paths[index]: index for index in known.of_kind(Kind.FILE)}
    taken: dict[int, bytes] = {}
    for index in manifest.of_kind(Kind.FILE):
        before = places.get(manifest.paths[index])
        pieces = table.of_file(index)
        if before is None or not pieces or any(piece in held for piece in pieces):
            continue
        if not _same(manifest, index, known, before):
            continue
        source = os.fsencode(folder) + b"/" + known.published_path(before)
        if _link(source, manifest, index, tree):
            numbers = known_table.of_file(before)
            taken.update(zip(pieces, (digests[number] for number in numbers), strict=False))
    return taken


def _same(manifest: Manifest, index: int, known: Manifest, before: int) -> bool:
    return (
        manifest.sizes_bytes[index] == known.sizes_bytes[before]
        and manifest.mtimes_ns[index] == known.mtimes_ns[before]
        and manifest.ctimes_ns[index] == known.ctimes_ns[before]
        and manifest.modes[index] == known.modes[before]
        and manifest.data_extents(index) == known.data_extents(before)
        and manifest.origins.get(index) == known.origins.get(before)
    )


def _link(source: bytes, manifest: Manifest, index: int, tree: int) -> bool:
    """Whether the older file was there and is linked now."""
    path = manifest.published_path(index)
    try:
        status = os.lstat(source)
        if not stat.S_ISREG(status.st_mode) or status.st_size != manifest.sizes_bytes[index]:
            return False
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path, dir_fd=tree)
        os.link(source, path, dst_dir_fd=tree, follow_symlinks=False)
    except OSError:
        return False
    return True
