"""Slurm's grammar of times.

Limits are read as sbatch reads them (checked against Slurm 22.05): ``90`` is minutes,
``90:00`` minutes and seconds, ``1:30:00`` hours, ``1-12``, ``1-12:30`` and ``1-12:30:15``
days; seconds are rounded up to a whole minute; ``0``, ``-1``, UNLIMITED and INFINITE mean
no limit. (sbatch also takes ``-2`` and makes nonsense of it: refused here.)
"""

from __future__ import annotations

import re

_DAYS = re.compile(r"(\d+)-(?:(\d+)(?::(\d+)(?::(\d+))?)?)?", re.ASCII)
_CLOCK = re.compile(r"(\d+)(?::(\d+))?(?::(\d+))?", re.ASCII)
_ELAPSED = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)(?:\.\d+)?", re.ASCII)

_NO_LIMIT = {"UNLIMITED", "INFINITE", "-1"}
_NOT_SET = {"", "N/A", "NONE", "NOT_SET", "UNKNOWN", "(NULL)", "PARTITION_LIMIT", "INVALID"}

TIME_FORMS = "M, M:S, H:M:S, D-H, D-H:M, D-H:M:S, 0, UNLIMITED or INFINITE"


def read_time_limit(text: str) -> int | None:
    """The limit in seconds, a multiple of 60; None: no limit.

    Raises:
        ValueError: sbatch would not take it.
    """
    if text.upper() in _NO_LIMIT or re.fullmatch(r"-0+", text):
        return None
    with_days = _DAYS.fullmatch(text)
    if with_days:
        days, hours, minutes, seconds = (int(part or 0) for part in with_days.groups())
        total_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    else:
        clock = _CLOCK.fullmatch(text)
        if clock is None:
            raise ValueError(f"{text!r} is not a time limit: expected {TIME_FORMS}")
        first, second, third = (int(part or 0) for part in clock.groups())
        if clock[3] is None:
            total_s = first * 60 + second
        else:
            total_s = first * 3600 + second * 60 + third
    return -(-total_s // 60) * 60 or None


def read_elapsed(text: str) -> int | None:
    """Seconds of a time that a Slurm command printed, ``[[D-]H:]M:S``; None: no limit, or
    nothing known.

    Raises:
        ValueError: it is not a time.
    """
    word = text.strip()
    if word.upper() in _NO_LIMIT or word.upper() in _NOT_SET:
        return None
    matched = _ELAPSED.fullmatch(word)
    if matched is None:
        raise ValueError(f"{text!r} is not a time that Slurm prints")
    days, hours, minutes, seconds = (int(part or 0) for part in matched.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
