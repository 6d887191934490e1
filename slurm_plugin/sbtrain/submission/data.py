"""What is known of the data from the login node: that it is there, its size, its samples,
and whether it can be staged."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sbtrain_perf.errors import MissingExtraError, RequestError, needs_extra
from sbtrain_perf.request import DataSet, Plan

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
        return sum(_sizes(os.fsencode(path.resolve())))
    except OSError as error:
        raise RequestError(
            f"--train-data: cannot read {os.fsdecode(error.filename or path)}: "
            f"{error.strerror}",
            hint="give a file or folder on the filesystem that all nodes share",
        ) from error


def _sizes(root: bytes) -> Iterator[int]:
    """Of all files below a folder, and of what links lead to that lead out of it."""
    todo = [root]
    while todo:
        with os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_symlink():
                    yield from _taken_along(root, entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                else:
                    yield entry.stat(follow_symlinks=False).st_size


def _taken_along(root: bytes, link: bytes) -> Iterator[int]:
    from sbtrain_staging.errors import StagingError
    from sbtrain_staging.sources.links import check_ends, kept_target

    path = os.path.relpath(link, root)
    if kept_target(root, path) is not None:
        return
    if not os.path.isdir(link):  # noqa: PTH112
        yield os.stat(link).st_size  # noqa: PTH116
        return
    try:
        check_ends(root, path)
    except StagingError:
        return  # check_staging says so, where the data is staged
    yield from _sizes(link)


def check_staging(plan: Plan) -> tuple[str, str]:
    """Find out now what staging would say only in the job, after it has waited.

    Returns:
        What srun starts its ranks with, by the MPI library (empty: nothing is staged, or none
        is here), and what may go wrong; empty where nothing is known to.

    Raises:
        RequestError: the data refers to something outside of itself, or cannot be staged.
        MissingExtraError: a package is missing that staging needs.
    """
    if not plan.data.paths or plan.scratch_path is None:
        return "", ""
    from sbtrain_staging.errors import StagingError

    try:
        for path in plan.data.paths:
            _check_source(Path(path))
    except StagingError as error:
        raise RequestError(
            f"--train-data: {error.message}",
            hint=f"{error.hint}; without --train-data the script reads the shared filesystem",
        ) from error
    return _mpi() if plan.nodes > 1 else ("none", "")


def _check_source(path: Path) -> None:
    from sbtrain_staging.formats.hdf5_references import check_references, hdf5_files
    from sbtrain_staging.sources.scan import scan

    manifest = scan(path, holes=False)
    found = hdf5_files(manifest)
    if found:
        _need("h5py", purpose=f"seeing what {manifest.shown(found[0])} refers to")
    check_references(manifest, found, given=path, parted=False)


def _need(package: str, *, purpose: str) -> None:
    from importlib.util import find_spec

    if find_spec(package) is None:
        raise MissingExtraError(package, extra="staging", purpose=purpose)


def _mpi() -> tuple[str, str]:
    """Which MPI this Python, which the job uses, loads, or why none: in a process of its own.

    Where it has mpi4py and no library, the nodes of the job may still have one.
    """
    from sbtrain_jobs.process import run_command
    from sbtrain_perf.extras import install_extras

    purpose = "staging to more than one node"
    _need("mpi4py", purpose=purpose)
    code = "import mpi4py; mpi4py.rc.initialize = False; from mpi4py import MPI; "
    code += "print(MPI.get_vendor()[0])"
    tried = run_command([sys.executable, "-P", "-c", code], timeout_s=60.0, check="keep")
    if tried.returncode == 0:
        return ("pmix" if "open mpi" in tried.stdout.lower() else "pmi2"), ""
    said = [line for line in tried.stderr.splitlines() if line and not line.startswith(" ")]
    return "", (
        f"{purpose} needs an MPI library, which cannot be loaded here: "
        f"{' '.join(said[1:2]) or 'its process ended without a word'}; where the job's nodes "
        "lack it too, each reads the data where it lies: load the site's MPI module, or "
        f"{install_extras('mpich')}"
    )


def _samples(paths: Sequence[Path]) -> int | None:
    """Samples of all files together; None unless every one is HDF5 that tells."""
    if not paths or any(path.suffix not in _HDF5 or path.is_dir() for path in paths):
        return None
    with needs_extra("perf", purpose="counting the samples (or say --train-samples)"):
        from h5py import File
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
