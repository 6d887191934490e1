"""What HDF5 files of a source refer to outside of it: the sources of virtual data sets, links
to other files, data that is kept in other files.

HDF5 reads zeros, without an error, where the source of a virtual data set is missing. So what
a copy on a node would not find there is refused before anything is staged. Only structure is
read, never data.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sbtrain_perf.extras import install_extras, newer_h5py
from sbtrain_staging.errors import SourceError, StagingError
from sbtrain_staging.sources.manifest import Kind, Manifest, shown_path

HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
# Of a source with more files than this, those alone are looked at that have such a name.
ALL_LOOKED_AT = 2000
_HEAD_BYTES = (64 << 10) + len(HDF5_SIGNATURE)
_NAMES = re.compile(
    rb"\.(h5|hdf5?|he5|h5ad|h5m|hf5|keras|nc4?|cdf|nxs|mat|jld2?|loom|cxi|cool|nwb|silo)$",
    re.IGNORECASE,
)
_ONE_FILE = "write it as one file of its own (h5repack -l CONTI OLD NEW)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One mention of another file.

    Attributes:
        what: "virtual", "link" or "raw".
        where: the object in the file that says so.
        name: of the other file, as it stands there.
    """

    what: str
    where: str
    name: bytes


def hdf5_files(manifest: Manifest, *, turn: int = 0, turns: int = 1) -> list[int]:
    """The entries that are HDF5 files or links to some; of many, the names say which count.

    Args:
        turn: of so many processes that share the looking, which this is.
    """
    files = [*manifest.of_kind(Kind.FILE), *manifest.of_kind(Kind.LINK)]
    if len(files) > ALL_LOOKED_AT:
        files = [index for index in files if _NAMES.search(manifest.paths[index])]
    return [index for index in files[turn::turns] if _is_hdf5(manifest.source_path(index))]


def check_references(
    manifest: Manifest, indexes: Collection[int], *, given: Path, parted: bool
) -> None:
    """Make sure that these HDF5 files refer to nothing that a copy would not have.

    Args:
        given: the source as it was named, which may be a link.
        parted: the files of the source are dealt out, and may come to different nodes.

    Raises:
        SourceError: one does; it is named with what to do.
        StagingError: h5py is not installed, and one of the files is HDF5.
    """
    for index in indexes:
        for found in references(manifest.source_path(index)):
            _check(manifest, index, found, given=given, parted=parted)


def _is_hdf5(path: bytes) -> bool:
    """Whether a file is HDF5, also after a block of the user's: of 512 bytes, or twice that,
    and so on; where the name does not tell, of no more than one read shows."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return _signature_at(descriptor, path) is not None
    finally:
        os.close(descriptor)


def _signature_at(descriptor: int, path: bytes) -> int | None:
    try:
        head, size_bytes = os.pread(descriptor, _HEAD_BYTES, 0), os.fstat(descriptor).st_size
        at = 0
        while at < (size_bytes if _NAMES.search(path) else len(head)):
            here = head[at:] or os.pread(descriptor, len(HDF5_SIGNATURE), at)
            if here.startswith(HDF5_SIGNATURE):
                return at
            at = 2 * at or 512
    except OSError:
        return None
    return None


def references(path: bytes) -> Iterator[Reference]:
    """All mentions of other files; none where HDF5 cannot read the file, as no program can.

    Raises:
        SourceError: a part of the file cannot be looked at, or it is left open.
        StagingError: h5py is not installed.
    """
    try:
        import h5py
    except ImportError:
        raise StagingError(
            f"{shown_path(path)} is HDF5, and 'h5py' is not installed: whether it refers to "
            "other files cannot be seen",
            hint=install_extras("staging"),
        ) from None
    for swmr in (False, True):  # what a writer has left open can be read by its readers' mode
        try:
            file = h5py.File(os.fsdecode(path), "r", locking=False, swmr=swmr)
        except (OSError, RuntimeError, KeyError, ValueError):
            continue
        with file:
            yield from _of(file.id, path)
        return
    if _is_left_open(path):
        raise _unseen(
            path, "its writer has left it open", hint=f"h5clear -s {shown_path(path)}"
        )


def _is_left_open(path: bytes) -> bool:
    """By the flags of a superblock of version 3, or one that this HDF5 does not know."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        head = os.pread(descriptor, 12, _signature_at(descriptor, path) or 0)
    finally:
        os.close(descriptor)
    return len(head) == 12 and head[8] >= 3 and (head[8] > 3 or bool(head[11]))


def _unseen(path: bytes, why: str, *, hint: str) -> SourceError:
    return SourceError(
        f"{shown_path(path)} may refer to other files, which cannot be seen: {why}", hint=hint
    )


def _of(file: Any, path: bytes) -> Iterator[Reference]:
    import h5py

    outward: list[bytes] = []
    objects: list[bytes] = []

    def see(name: bytes, info: Any) -> None:
        if info.type == h5py.h5l.TYPE_EXTERNAL:
            outward.append(name)
        elif info.type == h5py.h5l.TYPE_HARD:
            objects.append(name)

    where = "its links"
    try:
        file.links.visit(see, info=True)
        for name in outward:
            other = file.links.get_val(name)[0]
            yield Reference(what="link", where=shown_path(name), name=other)
        for name in objects:
            where = shown_path(name)
            if h5py.h5o.get_info(file, name).type == h5py.h5o.TYPE_DATASET:
                yield from _of_data_set(h5py.h5d.open(file, name), where)
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise _unseen(
            path,
            f"{where} cannot be read ({error})",
            hint=newer_h5py(str(error))
            or "write the file anew, or leave it out; with --mode stream nothing is copied",
        ) from error


def _of_data_set(data: Any, where: str) -> Iterator[Reference]:
    import h5py

    made = data.get_create_plist()
    if made.get_layout() == h5py.h5d.VIRTUAL:
        names = {made.get_virtual_filename(n) for n in range(made.get_virtual_count())}
        for source in sorted(names - {"."}):
            yield Reference(what="virtual", where=where, name=os.fsencode(source))
    for number in range(made.get_external_count()):
        yield Reference(what="raw", where=where, name=made.get_external(number)[0])


def _check(
    manifest: Manifest, index: int, found: Reference, *, given: Path, parted: bool
) -> None:
    path = manifest.source_path(index)
    shown, named = shown_path(path), shown_path(found.name)
    if found.what == "raw":  # HDF5 looks for it in a program's current folder
        raise SourceError(
            f"{shown} keeps its data set {found.where} in another file, {named}", hint=_ONE_FILE
        )
    does = "is put together from" if found.what == "virtual" else "links to"
    beside = _meant(os.path.dirname(path), found.name)  # noqa: PTH120
    if manifest.kinds[index] == Kind.LINK and not beside:
        return  # what is elsewhere is looked for from the file itself
    # HDF5 looks also where the file itself lies that a link leads to, and in the current
    # folder; of a copy all that is gone.
    elsewhere = [os.path.dirname(os.path.realpath(path)), _current_folder()]  # noqa: PTH120
    if manifest.kinds[0] == Kind.FILE:
        elsewhere.insert(0, os.path.join(elsewhere[1], os.fsencode(given.parent)))  # noqa: PTH118
    seen = (_meant(folder, found.name) for folder in elsewhere)
    others = beside or next(filter(None, seen), [])
    relative = os.path.dirname(manifest.paths[index]) + b"/" + found.name  # noqa: PTH120
    leaves = os.path.normpath(relative.lstrip(b"/")).split(b"/")[0] == b".."
    if not others:
        if found.what == "link":
            return  # leads nowhere at the source either, and programs are told
        raise SourceError(
            f"{shown} {does} {named} ({found.where}), which is not there: programs would read "
            "fill values, without an error",
            hint=f"bring {named} to its place, or {_ONE_FILE}",
        )
    for other in others:
        inside = bool(beside) and not leaves and _is_inside(manifest, other)
        if inside and parted:
            raise SourceError(
                f"{shown} {does} {shown_path(other)} ({found.where}), which may come to "
                "another node",
                hint=f"stage it with --mode replicate, or {_ONE_FILE}",
            )
        if not inside:
            raise SourceError(
                f"{shown} {does} {shown_path(other)} ({found.where}), which a copy on a node "
                "would not find",
                hint=f"{_together(manifest, other)}{_ONE_FILE}",
            )
        if found.name.startswith(b"/"):
            raise SourceError(
                f"{shown} {does} {named} ({found.where}) by an absolute path: nodes would read "
                "it there, not in their scratch",
                hint=f"name it relative to the folder of {shown}, or {_ONE_FILE}",
            )


def _current_folder() -> bytes:
    try:
        return os.fsencode(Path.cwd())
    except OSError:
        return b"/"  # it is gone, and nothing is found there


def _meant(folder: bytes, name: bytes) -> list[bytes]:
    """The files that a name means, seen from a file in a folder; %b counts blocks."""
    path = os.path.normpath(folder + b"/" + name if name[:1] != b"/" else name)
    if b"%" not in name:
        return [path] if os.path.lexists(path) else []
    parts = re.split(rb"(%%|%b)", os.path.basename(path))  # noqa: PTH119
    fixed = {b"%%": b"%"}
    pattern = b"".join(
        rb"\d+" if part == b"%b" else re.escape(fixed.get(part, part)) for part in parts
    )
    above = os.path.dirname(path)  # noqa: PTH120
    try:
        names = os.listdir(above)  # noqa: PTH208
    except OSError:
        return []
    return [above + b"/" + found for found in sorted(names) if re.fullmatch(pattern, found)]


def _is_inside(manifest: Manifest, path: bytes) -> bool:
    """Whether a copy has this file of the source, under the same name."""
    root = os.fsencode(manifest.root)
    if path == root:
        same = os.path.basename(path) == os.fsencode(manifest.name)  # noqa: PTH119
        return same and manifest.kinds[0] == Kind.FILE
    for seen in (path, os.path.realpath(path)):
        if seen.startswith(root + b"/"):
            index = manifest.find(seen[len(root) + 1 :])
            if index is not None:
                return True
    return False


def _together(manifest: Manifest, other: bytes) -> str:
    root = os.fsencode(manifest.root)
    folder = os.path.commonpath([os.path.dirname(root), os.path.dirname(other)])  # noqa: PTH120
    if folder == b"/":
        return ""
    below = os.path.relpath(root, folder)
    what = shown_path(below)
    return f"name the folder that holds both, {shown_path(folder)}, and open {what} in it, or "
