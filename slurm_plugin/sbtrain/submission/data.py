"""What is known of the data from the login node: that it is there, its size, its samples."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sbtrain_perf.errors import MissingExtraError, RequestError
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
        MissingExtraError: samples are to be counted, and there is no h5py.
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
        mode = path.stat().st_mode
        if not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            raise RequestError(
                f"--train-data: {path} is neither a file nor a folder",
                hint="write what comes out of it into a file first",
            )
        if stat.S_ISREG(mode):
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
    if not paths or any(path.suffix not in _HDF5 or path.is_dir() for path in paths):
        return None
    try:
        from h5py import File
    except ModuleNotFoundError as error:
        if error.name != "h5py":
            raise
        raise MissingExtraError(
            "h5py", extra="perf", purpose="counting the samples (or say --train-samples)"
        ) from error
    total = 0
    for path in paths:
        try:
            with File(path, "r") as file:
                here = _samples_of(file)
        except OSError as error:
            raise RequestError(
                f"--train-data: {path} cannot be read as HDF5: {error}",
                hint="it may be half written; or say --train-samples or --train-steps",
            ) from error
        if here is None:
            return None
        total += here
    return total


def _samples_of(file: File) -> int | None:
    """The attribute `samples`, else the length that the training datasets share, else the
    one that all datasets at the top share."""
    try:
        said = int(file.attrs.get("samples", 0))
    except (TypeError, ValueError):
        said = 0  # of another meaning
    if said > 0:
        return said
    lengths = {
        name: int(member.shape[0])
        for name, member in file.items()
        if getattr(member, "shape", None)
    }
    train = {length for name, length in lengths.items() if "train" in name}
    shared = train or set(lengths.values())
    return next(iter(shared)) if len(shared) == 1 else None
