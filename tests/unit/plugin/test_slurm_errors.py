"""Errors have one shape, their own exit codes, and print as one line and a hint."""

from __future__ import annotations

import pytest

from sbtrain.errors import (
    SlurmError,
    SlurmMissingError,
    SlurmRejectedError,
    SlurmTimeoutError,
    SlurmUnparsableError,
    describe,
)
from sbtrain_perf.errors import SbtrainError
from sbtrain_staging.errors import StagingError


@pytest.mark.parametrize("error", [SbtrainError, StagingError])
def test_both_roots_print_what_happened_and_what_to_do(
    error: type[SbtrainError] | type[StagingError],
) -> None:
    assert describe(error("the disk is full", hint="delete something")) == (
        "error: the disk is full\nhint: delete something"
    )
    assert describe(error("the disk\n  is full")) == "error: the disk is full"


@pytest.mark.parametrize(
    "error", [SlurmMissingError, SlurmRejectedError, SlurmTimeoutError, SlurmUnparsableError]
)
def test_every_slurm_error_says_what_to_do(error: type[SlurmError]) -> None:
    assert "\nhint: " in describe(error("Slurm said no"))
    assert describe(error("Slurm said no", hint="ask Ada")).endswith("\nhint: ask Ada")
