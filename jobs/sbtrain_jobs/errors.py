"""Errors of what runs inside a job; the root is sbtrain_perf.errors.SbtrainError.

SbtrainError
├── CheckpointError       a checkpoint cannot be written, read or trusted
├── LaunchError           trainers could not be started or did not meet
└── CommandError          an external command failed
    ├── CommandMissingError   it is not on PATH
    ├── CommandFailedError    it exited with another code than 0
    └── CommandTimeoutError   it did not answer in time
"""

from __future__ import annotations

from collections.abc import Sequence

from sbtrain_perf.errors import SbtrainError


class CheckpointError(SbtrainError):
    exit_code = 20


class LaunchError(SbtrainError):
    exit_code = 21


class CommandError(SbtrainError):
    """Attributes: argv, and what the command printed as far as it is known."""

    exit_code = 22

    def __init__(
        self,
        message: str,
        *,
        argv: Sequence[str],
        returncode: int | None = None,
        stdout: str = "",
        stderr: str = "",
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.argv = tuple(argv)
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr


class CommandMissingError(CommandError):
    exit_code = 23


class CommandFailedError(CommandError):
    exit_code = 24


class CommandTimeoutError(CommandError):
    exit_code = 25
