"""The root of sbtrain's error tree, and the errors of requests, plans and logs.

SbtrainError
├── RequestError          the request cannot be understood or contradicts itself
├── PlanError             no plan fits, or a plan file cannot be read
├── TimingLogError        a timing log cannot be read or written
├── CoefficientsError     a coefficients file is not valid
└── (jobs)                sbtrain_jobs.errors: checkpoints, launch, processes
    └── (plugin)          sbtrain.errors: site, policy, Slurm

Every error carries one line that says what happened, a hint that says what to do,
and the exit code of a command that ends with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sbtrain_perf.extras import install_extras


class SbtrainError(Exception):
    """What went wrong in one line, with what to do about it.

    Attributes:
        message: what happened.
        hint: what the user can do; may be empty.
        exit_code: exit status of a command that ends with this error.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class RequestError(SbtrainError):
    exit_code = 2


class PlanError(SbtrainError):
    exit_code = 3


class TimingLogError(SbtrainError):
    exit_code = 4


class CoefficientsError(SbtrainError):
    exit_code = 5


class MissingExtraError(SbtrainError):
    """A part of sbtrain needs a package that the base install does not bring.

    said: why one cannot be loaded that is there.
    """

    exit_code = 6

    def __init__(self, package: str, *, extra: str, purpose: str, said: str = "") -> None:
        lack = f"the Python package {package!r}, which is not installed"
        if said:
            lack = f"the packages of the extra {extra}, which cannot be loaded: {said}"
        super().__init__(f"{purpose} needs {lack}", hint=install_extras(extra))
        self.package = package
        self.extra = extra


@contextmanager
def needs_extra(extra: str, *, purpose: str) -> Iterator[None]:
    """Turn an import that fails inside the block into MissingExtraError."""
    try:
        yield
    except ImportError as error:
        said = "" if isinstance(error, ModuleNotFoundError) else str(error)
        raise MissingExtraError(
            error.name or extra, extra=extra, purpose=purpose, said=said
        ) from error
