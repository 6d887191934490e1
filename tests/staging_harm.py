"""Random harm to a node's cache between two stagings, and random changes of the source."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from staging_trees import rot, snapshot, write_file


def harm_cache(copy: Path, chance: random.Random) -> None:
    """Between none and five kinds of harm.

    Args:
        copy: a published tree; the cache is found from it.
    """
    for _ in range(chance.choice((0, 1, 1, 2, 5))):
        with contextlib.suppress(OSError):  # of folders that an earlier harm closed
            chance.choice(_MUTATIONS)(copy, chance)


def by_content(tree: Path) -> dict[bytes, tuple[object, ...]]:
    """A snapshot without the times of folders and links: copies of one content share them."""
    return {
        name: (mode, content, time_ns if stat.S_ISREG(mode) else 0)
        for name, (mode, time_ns, content) in snapshot(tree).items()
        if isinstance(mode, int)
    }


def _flip(copy: Path, chance: random.Random) -> None:
    files = [p for p in copy.rglob("*") if p.is_file() and not p.is_symlink()]
    found = [path for path in files if path.stat().st_size]
    if found:
        path = chance.choice(found)
        rot(path, at=chance.randrange(path.stat().st_size))


def _cut(copy: Path, chance: random.Random) -> None:
    found = [p for p in copy.rglob("*") if p.is_file() and not p.is_symlink()]
    if found:
        path = chance.choice(found)
        times = path.stat().st_mtime_ns
        os.truncate(path, chance.randrange(path.stat().st_size + 1))
        if chance.random() < 0.5:
            os.utime(path, ns=(times, times))


def _delete(copy: Path, chance: random.Random) -> None:
    found = list(copy.parents[2].rglob("*"))
    if found:
        path = chance.choice(found)
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _turn(copy: Path, chance: random.Random) -> None:
    """Another kind of thing, or one from elsewhere, under a name of the cache."""
    names = list(copy.parents[2].rglob("*"))
    if len(names) < 2:
        return
    path, other = chance.sample(names, 2)
    if path in other.parents or other in path.parents:
        return
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    kind = chance.choice(("file", "folder", "link", "copy"))
    if kind == "file":
        path.write_bytes(chance.randbytes(30))
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(other)
    elif other.is_dir() and not other.is_symlink():
        shutil.copytree(other, path, symlinks=True)
    else:
        shutil.copy2(other, path, follow_symlinks=False)


def _scribble(copy: Path, chance: random.Random) -> None:
    """A record or a pin with something else in it."""
    kept = [p for p in copy.parents[2].glob("[rp]*/**/*") if p.is_file()]
    if kept:
        path = chance.choice(kept)
        content = bytearray(path.read_bytes())
        for _ in range(chance.randrange(1, 4)):
            if content:
                content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content)


def _add(copy: Path, chance: random.Random) -> None:
    folders = [p for p in (copy, *copy.rglob("*")) if p.is_dir() and not p.is_symlink()]
    if folders:
        write_file(chance.choice(folders) / "added", 10)


def _change_mode(copy: Path, chance: random.Random) -> None:
    found = [p for p in copy.parents[2].rglob("*") if not p.is_symlink()]
    if found:
        chance.choice(found).chmod(chance.choice((0o000, 0o777, 0o400, 0o755)))


_MUTATIONS: tuple[Callable[[Path, random.Random], None], ...] = (
    _flip, _flip, _cut, _delete, _turn, _scribble, _add, _change_mode,
)  # fmt: skip


def change_source(tree: Path, chance: random.Random) -> None:
    kind = chance.choice(("nothing", "nothing", "touch", "mode", "write", "name"))
    files = [p for p in tree.rglob("*") if p.is_file() and not p.is_symlink()]
    path = chance.choice(files)
    if kind == "touch":
        os.utime(path)
    elif kind == "mode":
        path.chmod(path.stat().st_mode & 0o7777)
    elif kind == "write":
        path.write_bytes(chance.randbytes(path.stat().st_size))
    elif kind == "name":
        path.rename(path.with_name(f"{path.name}-{chance.randrange(9)}"))
