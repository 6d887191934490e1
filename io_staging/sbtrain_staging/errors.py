"""Errors of staging. This wing stands alone, so its root is its own; it has the same shape
as sbtrain's other errors: a message, a hint and an exit code.

StagingError
├── SourceError           the data set is missing, unreadable, or changed while it was read
├── ScratchError          the node's scratch is missing, full or not writable
├── VerificationError     a copy does not have the hash of its source
└── WorldError            the MPI world is not the one that the launcher started
"""

from __future__ import annotations


class StagingError(Exception):
    """What went wrong in one line, with what to do about it."""

    exit_code = 30

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class SourceError(StagingError):
    exit_code = 31


class ScratchError(StagingError):
    exit_code = 32


class VerificationError(StagingError):
    exit_code = 33


class WorldError(StagingError):
    exit_code = 34
