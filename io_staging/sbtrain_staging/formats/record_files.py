"""Where the records of a TFRecord file, or the members of a tar file, begin and end.

Only the headers are read: one small read a record. Files of very small records cost more
reads than they are worth; they are refused, for one file a node is better then.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from sbtrain_staging.errors import SourceError

TAR_END_BYTES = 1024  # two blocks of zeros
RUN_BYTES = 4 << 20
RECORDS_MOST = 2_000_000
_LENGTH = struct.Struct("<Q")
# tf.io: length (8 bytes), its masked CRC-32C (4), the data, the data's masked CRC-32C (4).
_FRAME_BYTES = 16


def record_runs(path: Path, kind: str, *, nodes: int) -> list[int]:
    """Where runs of whole records end, the first beginning at 0; a run is RUN_BYTES or
    1/64 of a node's part, whichever is less, or one record.

    Args:
        kind: "tfrecord" or "tar".

    Raises:
        SourceError: the file is not of that kind, damaged, or has fewer records than nodes.
    """
    size_bytes = path.stat().st_size
    ends = _tar_ends(path) if kind == "tar" else _tfrecord_ends(path, size_bytes)
    least = min(RUN_BYTES, size_bytes // (64 * nodes))
    runs: list[int] = []
    last = 0
    for end in ends:
        if end - last >= least or end == ends[-1]:
            runs.append(end)
            last = end
    if len(runs) < nodes:
        raise SourceError(
            f"{path} holds {len(ends)} records, too few to deal out to {nodes} nodes",
            hint="stage it with --mode replicate",
        )
    return runs


def _tfrecord_ends(path: Path, size_bytes: int) -> list[int]:
    ends: list[int] = []
    at = 0
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        while at < size_bytes:
            head = os.pread(descriptor, _LENGTH.size, at)
            end = at + _FRAME_BYTES + (
                _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else size_bytes
            )  # fmt: skip
            if end > size_bytes:
                raise SourceError(
                    f"{path} is no TFRecord file, or is cut short or compressed, at byte {at}",
                    hint="stage it with --mode replicate",
                )
            ends.append(end)
            _check_count(path, len(ends))
            at = end
    finally:
        os.close(descriptor)
    return ends


def _tar_ends(path: Path) -> list[int]:
    import tarfile

    starts: list[int] = []
    try:
        with tarfile.open(path, "r:") as tar:
            while (member := tar.next()) is not None:
                if member.islnk() or member.sparse is not None:
                    raise SourceError(
                        f"{path} holds a hard link or sparse file ({member.name}), which may "
                        "not be parted from the rest",
                        hint="stage it with --mode replicate",
                    )
                starts.append(member.offset)
                end = tar.offset
                _check_count(path, len(starts))
                tar.members = []  # type: ignore[attr-defined]
            if tar.pax_headers:
                raise SourceError(
                    f"{path} has headers that hold for all of its members",
                    hint="stage it with --mode replicate",
                )
    except (tarfile.TarError, EOFError) as error:
        raise SourceError(
            f"{path} is no uncompressed tar file: {error}",
            hint="stage it with --mode replicate",
        ) from None
    return [*starts[1:], end] if starts else []


def _check_count(path: Path, count: int) -> None:
    if count > RECORDS_MOST:
        raise SourceError(
            f"{path} holds more than {RECORDS_MOST} records",
            hint="write it as several files in a folder: they are dealt as they are",
        )
