"""What is known of the data from the login node: that it is there, its size, its samples."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sbtrain_perf.errors import RequestError
from sbtrain_perf.request import DataSet

if TYPE_CHECKING:
    from h5py import File

_HDF5 = {".h5", ".hdf5", ".hdf", ".he5"}


def data_set(
    paths: Sequence[str],
    *,
    cwd: Path,
    samples: int | None,
    count: Literal["count", "skip"],
) -> DataSet:
    """The data set that --train-data names, paths made absolute.

    Args:
        samples: as the user says; None: counted where `count` says so and HDF5 tells.

    Raises:
        RequestError: a path is missing, may not be read, or cannot be handed on.
    """
    found = [cwd / Path(path).expanduser() for path in paths]
    for path in found:
        if os.pathsep in str(path):
            raise RequestError(
                f"--train-data: a path that holds {os.pathsep!r} cannot be handed on: {path}",
                hint="rename it, or give a link of another name",
            )
    total_bytes = sum(_size(path) for path in found)
    if samples is None and count == "count":
        samples = _samples(found)
    return DataSet(
        paths=tuple(str(path) for path in found), total_bytes=total_bytes, samples=samples
    )


def _size(path: Path) -> int:
    try:
        if not path.is_dir():
            path.open("rb").close()
            return path.stat().st_size
        return sum(
            Path(folder, name).lstat().st_size
            for folder, _, names in os.walk(path, onerror=_raise)
            for name in names
        )
    except OSError as error:
        raise RequestError(
            f"--train-data: cannot read {error.filename or path}: {error.strerror}",
            hint="give a file or folder on the filesystem that all nodes share",
        ) from error


def _raise(error: OSError) -> None:
    raise error


def _samples(paths: Sequence[Path]) -> int | None:
    """Samples of all files together; None unless every one is HDF5 that tells."""
    if not paths or any(path.suffix not in _HDF5 for path in paths):
        return None
    try:
        from h5py import File
    except ImportError:
        return None
    total = 0
    for path in paths:
        try:
            with File(path, "r") as file:
                here = _samples_of(file)
        except OSError:
            return None
        if here is None:
            return None
        total += here
    return total


def _samples_of(file: File) -> int | None:
    """The attribute `samples`, else the length that the training datasets share, else the
    one that all datasets at the top share."""
    said = file.attrs.get("samples")
    if said is not None and int(said) > 0:
        return int(said)
    lengths = {
        name: int(member.shape[0])
        for name, member in file.items()
        if getattr(member, "shape", None)
    }
    train = {length for name, length in lengths.items() if "train" in name}
    shared = train or set(lengths.values())
    return next(iter(shared)) if len(shared) == 1 else None
