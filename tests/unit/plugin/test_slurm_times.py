"""Times and memory are read as sbatch reads them; what is written, sbatch takes unchanged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbtrain.slurm.times import (
    read_elapsed,
    read_memory,
    read_time_limit,
    write_memory,
    write_time_limit,
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


@given(st.integers(1, 400 * DAY))
def test_a_limit_is_rounded_up_to_a_minute_and_never_lost(limit_s: int) -> None:
    read = read_time_limit(write_time_limit(limit_s))
    assert read is not None
    assert limit_s <= read < limit_s + 60


def test_limits_are_written_so_that_no_reader_takes_hours_for_minutes() -> None:
    assert write_time_limit(90) == "00:02:00"
    assert write_time_limit(0.5) == "00:01:00"
    assert write_time_limit(DAY + HOUR) == "1-01:00:00"
    assert write_time_limit(None) == "UNLIMITED"
    for impossible in (0, -60):
        with pytest.raises(ValueError, match="cannot be asked for"):
            write_time_limit(impossible)


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


@pytest.mark.parametrize(
    ("text", "mib"),
    [
        ("1000", 1000),
        ("1000M", 1000),
        ("512K", 1),
        ("1025K", 2),
        ("0K", 0),
        ("1G", 1024),
        ("100GB", 102400),
        ("100gb", 102400),
        ("1T", 1048576),
        ("+1G", 1024),
        ("0", 0),
    ],
)
def test_memory(text: str, mib: int) -> None:
    assert read_memory(text) == mib


@pytest.mark.parametrize(
    "text", ["", "G", "1.5G", "1P", "1B", "1GiB", "1GG", "-1", "1 G", "1e3"]
)
def test_what_sbatch_refuses_is_no_memory(text: str) -> None:
    with pytest.raises(ValueError, match="not an amount of memory"):
        read_memory(text)


@given(st.integers(0, 2**40))
def test_memory_survives_writing(mib: int) -> None:
    assert read_memory(write_memory(mib)) == mib
