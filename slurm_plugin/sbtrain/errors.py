"""Errors of the commands and of Slurm, and how a command prints any of them.

SbtrainError                  1      sbtrain_perf.errors; number: exit code of a command
├── RequestError              2      the request cannot be understood, or contradicts itself
│   ├── ScriptError           1      the script cannot be read, or sbatch would refuse it
│   ├── SbatchUsageError    255      sbatch would refuse these options, with this code
│   └── HeterogeneousError    2      several components
├── PlanError                 3      no plan fits, or a plan file cannot be read
├── TimingLogError            4
├── CoefficientsError         5
├── MissingExtraError         6      a package of an extra is not installed
├── ScoreError                7      sbtrain_perf.score: a data folder cannot be scored
├── SiteError                10      a site file is missing or says something impossible
├── HomeError                16      the user's list of runs cannot be read or written
├── SlurmError                       Slurm did not do what it was asked
│   ├── SlurmMissingError    12      its commands or its configuration are not there
│   ├── SlurmRejectedError   13      it understood and refused
│   ├── SlurmTimeoutError    14      it did not answer; it may answer later
│   └── SlurmUnparsableError 15      it answered in a form that sbtrain cannot read
├── CheckpointError          20      sbtrain_jobs.errors
├── LaunchError              21
├── CommandError          22-25      an external command failed
└── ClusterError          50-52      sbtrain.cluster.errors: the private cluster
StagingError              30-34      sbtrain_staging.errors: the other root, same shape

docs/exit-codes.md says what to do about each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sbtrain_perf.errors import RequestError, SbtrainError

if TYPE_CHECKING:
    from sbtrain_staging.errors import StagingError


class ScriptError(RequestError):
    exit_code = 1


class SbatchUsageError(RequestError):
    exit_code = 255


class HeterogeneousError(RequestError):
    pass


class HomeError(SbtrainError):
    exit_code = 16


class SiteError(SbtrainError):
    exit_code = 10


class SlurmError(SbtrainError):
    """Attributes: argv of the command, its exit status and what it wrote, where known."""

    default_hint = ""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        argv: Sequence[str] = (),
        returncode: int | None = None,
        stdout: str = "",
        stderr: str = "",
    ) -> None:
        super().__init__(message, hint=hint or self.default_hint)
        self.argv = tuple(argv)
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr


class SlurmMissingError(SlurmError):
    exit_code = 12
    default_hint = (
        "load your site's Slurm module or log in to a node that has Slurm; "
        "'sbtrainctl cluster up' starts a private one"
    )


class SlurmRejectedError(SlurmError):
    """Slurm's own words are in `message` on one line, and as written in `stderr`."""

    exit_code = 13
    default_hint = "change the options that Slurm names; the cluster itself is fine"


class SlurmTimeoutError(SlurmError):
    exit_code = 14
    default_hint = "slurmctld is busy or down: 'scontrol ping' tells; try again later"


class SlurmUnparsableError(SlurmError):
    """The command ran, but its output is not what any version known to sbtrain writes."""

    exit_code = 15
    default_hint = (
        "a wrapper around Slurm's commands may add text; "
        "please report the command and what it printed"
    )


def describe(error: SbtrainError | StagingError) -> str:
    """What a command prints before it exits with `error.exit_code`: what happened on one
    line, and what to do about it on the next where that is known."""
    happened = "error: " + " ".join(error.message.split())
    return f"{happened}\nhint: {' '.join(error.hint.split())}" if error.hint else happened
