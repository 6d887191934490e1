"""Times are read as sbatch reads and Slurm prints them."""

from __future__ import annotations

import pytest

from sbtrain.slurm.times import (
    read_elapsed,
    read_time_limit,
)

HOUR = 3600
DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("text", "limit_s"),
    [
        ("90", 90 * 60),
        ("90:00", 90 * 60),
        ("0:30", 60),
        ("30:90", 32 * 60),
        ("59:59", HOUR),
        ("1:2:3", HOUR + 3 * 60),
        ("1-", DAY),
        ("1-12", 36 * HOUR),
        ("1-25", 49 * HOUR),
        ("1-12:30", 36 * HOUR + 30 * 60),
        ("1-12:30:15", 36 * HOUR + 31 * 60),
        ("0", None),
        ("0:0", None),
        ("0-0:0:0", None),
        ("-1", None),
        ("-0", None),
        ("UNLIMITED", None),
        ("infinite", None),
    ],
)
def test_time_limits(text: str, limit_s: int | None) -> None:
    assert read_time_limit(text) == limit_s


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "5m", "1.5", "+5", "-2", "inf", "NONE", "٣"),
        *("1:", ":1", "1:2:", "1:2:3:4", "1-2:3:4:5", "1-:5", " 5", "5 ", "1- 2"),
    ],
)
def test_what_sbatch_refuses_is_no_time_limit(text: str) -> None:
    with pytest.raises(ValueError, match="not a time limit"):
        read_time_limit(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:00", 0),
        ("5:00", 300),
        ("00:05:00", 300),
        ("1:02:03", 3723),
        ("2-03:00:01", 2 * DAY + 3 * HOUR + 1),
        ("00:00:01.250", 1),
        ("UNLIMITED", None),
        ("N/A", None),
        ("Partition_Limit", None),
        ("INVALID", None),
        ("", None),
    ],
)
def test_times_that_commands_print(text: str, seconds: int | None) -> None:
    assert read_elapsed(text) == seconds


def test_a_printed_time_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="soon"):
        read_elapsed("soon")
