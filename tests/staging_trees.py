"""Data sets for staging tests, and a strict comparison of two trees."""

# Paths are bytes here, which pathlib does not take.
# ruff: noqa: PTH115, PTH123, PTH208

from __future__ import annotations

import os
import random
import stat
from pathlib import Path

# Fixed times: copies are compared with them.
_TIME_NS = 1_700_000_000_123_456_789


def write_file(path: Path, size_bytes: int, *, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(random.Random(f"{seed} {path.name}").randbytes(size_bytes))
    return path


def write_odd_tree(root: Path) -> Path:
    """A tree with what real data sets hold: odd names, links, holes, modes, empty files."""
    write_file(root / "train" / "a.tfrecord", 3_000_001)
    write_file(root / "train" / "b.tfrecord", 17 * (1 << 20) + 5)
    for number in range(200):
        write_file(root / "images" / f"{number % 7}" / f"{number}.jpg", 37 * number)
    (root / "empty").touch()
    (root / "no-entries").mkdir()
    (root / "latest").symlink_to("train/a.tfrecord")
    (root / "dangling").symlink_to("/nonexistent/place")
    (root / "folder-link").symlink_to("images/3")
    odd = os.fsencode(root) + b"/odd \xff\xfe name\nwith lines"
    with open(odd, "wb") as stream:
        stream.write(b"odd")
    with (root / "sparse").open("wb") as stream:
        stream.truncate(40 << 20)
        stream.seek(20 << 20)
        stream.write(b"in the middle" * 1000)
    (root / "all-hole").touch()
    os.truncate(root / "all-hole", 1 << 20)
    write_file(root / "locked" / "readonly", 100)
    (root / "locked" / "readonly").chmod(0o440)
    (root / "locked").chmod(0o550)
    for path in sorted(root.rglob("*"), reverse=True):
        os.utime(path, ns=(_TIME_NS, _TIME_NS), follow_symlinks=False)
    return root


def rot(path: Path, *, at: int = 0) -> None:
    """Flip a bit of a file whose size, mode and time stay as they are."""
    status = path.stat()
    path.chmod(0o600)
    with path.open("r+b") as stream:
        stream.seek(at)
        byte = stream.read(1)
        stream.seek(at)
        stream.write(bytes([byte[0] ^ 16]))
    path.chmod(stat.S_IMODE(status.st_mode))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def snapshot(root: Path) -> dict[bytes, tuple[object, ...]]:
    """All that a copy must keep of every name below a file or folder."""
    found: dict[bytes, tuple[object, ...]] = {}
    base = os.fsencode(root)
    todo = [base]
    while todo:
        path = todo.pop()
        status = os.lstat(path)
        content: object = None
        if stat.S_ISDIR(status.st_mode):
            todo += [path + b"/" + name for name in os.listdir(path)]
        elif stat.S_ISLNK(status.st_mode):
            content = os.readlink(path)
        else:
            with open(path, "rb") as stream:
                content = stream.read()
        found[path[len(base) :]] = (status.st_mode, status.st_mtime_ns, content)
    return found


def stray_names(cache: Path) -> list[str]:
    """What a finished run must not leave in a node's cache."""
    partial = [f"partial/{path.name}" for path in (cache / "partial").iterdir()]
    marked = [str(path) for path in cache.rglob("*sbtrain-tmp-*")]
    known = {path.name for path in cache.iterdir()}
    return partial + marked + sorted(known - {"data", "records", "partial", "pins", "lock"})
