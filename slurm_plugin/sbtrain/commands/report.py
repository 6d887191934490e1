"""How a command ends: what it prints of an error, with which exit status, and its version."""

from __future__ import annotations

import errno
import sys
from typing import TYPE_CHECKING

from sbtrain.errors import SlurmRejectedError, describe

if TYPE_CHECKING:
    from sbtrain_perf.errors import SbtrainError
    from sbtrain_staging.errors import StagingError

_BASE = ("numpy",)
_EXTRA_OF = {
    **dict.fromkeys(("h5py", "sklearn", "scipy"), "perf"),
    **dict.fromkeys(("mpi4py", "xxhash"), "staging"),
}


def report(error: SbtrainError | StagingError) -> int:
    """Print an error to stderr; returns the exit status.

    What sbatch refused stands there in sbatch's own words, with sbatch's own status.
    """
    if isinstance(error, SlurmRejectedError) and error.argv[:1] == ("sbatch",):
        sys.stderr.write(error.stderr)
        hinted = any(line.startswith("hint: ") for line in error.stderr.splitlines())
        if error.hint and not hinted:  # by a wrapper around sbatch, or sbtrain itself in it
            sys.stderr.write(f"hint: {error.hint}\n")
        return error.returncode or error.exit_code
    happened, *hint = describe(error).splitlines()
    excerpt = getattr(error, "excerpt", "")
    lines = (happened, *([excerpt] if excerpt else []), *hint)
    sys.stderr.write("".join(f"{line}\n" for line in lines))
    return error.exit_code


def missing_package(error: ModuleNotFoundError) -> int:
    """Say what brings a package that is not there. Raises the error for one of our own."""
    from sbtrain_perf.errors import MissingExtraError
    from sbtrain_perf.extras import pip_install

    package = (error.name or "").partition(".")[0]
    if package in _BASE:
        sys.stderr.write(
            f"error: the Python package {package!r} is not installed\n"
            f"hint: {pip_install(package)}\n"
        )
        return MissingExtraError.exit_code
    if package not in _EXTRA_OF:
        raise error
    return report(MissingExtraError(package, extra=_EXTRA_OF[package], purpose="this command"))


def stdout_failed(error: OSError) -> int:
    """Say so, unless its reader has gone, who knows; returns the exit status."""
    if error.errno != errno.EPIPE:
        sys.stderr.write(f"error: cannot write to standard output: {error.strerror}\n")
    return 1


def version() -> str:
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("sbtrain")
    except PackageNotFoundError:
        return "from a source tree"
