"""Values of sbatch's options, read as sbatch reads them (checked against Slurm 22.05): numbers
of nodes and tasks, signals. Times are in times.py.

Numbers may have blanks and a + before them. Where sbatch makes another number of one that is
too large, or a signal of any number, none is read here.
"""

from __future__ import annotations

import re
import signal

_NUMBER = r"\s*\+?\d+"
_NODES = re.compile(rf"({_NUMBER})(k?)(m?)\s*", re.ASCII | re.IGNORECASE)
_RANGE = re.compile(r"([^-]*)-([^-:]*)(?::\d+)?")
_MOST = 2**31 - 1
_MOST_LEAD_S = 2**16 - 1
_SIGNAL = re.compile(
    r"(?:BR|RB|B|R)?:?\s*(?:(?:SIG)?([A-Z]+[12]?)|\+?(\d+))\s*(?:@(?:\s*(?:\+|-(?=0+$))?(\d+))?)?",
    re.ASCII | re.IGNORECASE,
)
_SIGNALS = {  # by any other name sbatch knows none
    *("ABRT", "ALRM", "CONT", "HUP", "INT", "KILL", "QUIT", "STOP", "TERM", "TSTP", "TTIN"),
    *("TTOU", "URG", "USR1", "USR2", "XCPU"),
}


def read_nodes(text: str) -> tuple[int, int]:
    """The least and the largest number of nodes: N, A-B, and 1,4,8-16:2, as later releases
    take it; k and m stand for 1024 and 1024 * 1024.

    Raises:
        ValueError: sbatch would not take it.
    """
    numbers = list[int]()
    for part in text.split(","):
        limits = _RANGE.fullmatch(part)
        if limits is None:
            numbers.append(_nodes(part))
        else:
            numbers += [_nodes(limits[1]) if limits[1].strip() else 0, _nodes(limits[2])]
    if numbers[-1] < 1 or numbers != sorted(numbers):
        raise ValueError(f"{text!r} is not a number of nodes")
    return max(numbers[0], 1), numbers[-1]


def _nodes(text: str) -> int:
    found = _NODES.fullmatch(text)
    nodes = int(found[1]) << 10 * (len(found[2]) + 2 * len(found[3])) if found else _MOST + 1
    if nodes > _MOST:
        raise ValueError(f"{text!r} is not a number of nodes")
    return nodes


def read_tasks(text: str) -> int:
    """Raises ValueError where it is no number, or less than 1."""
    if not re.fullmatch(_NUMBER, text, re.ASCII) or not 1 <= int(text) <= _MOST:
        raise ValueError(f"{text!r} is not a number of tasks")
    return int(text)


def read_signal(text: str) -> str:
    """The signal of `[R][B][:]SIGNAL[@SECONDS]`, by its name without SIG.

    Raises:
        ValueError: sbatch would not take it, or it is no signal.
    """
    found = _SIGNAL.fullmatch(text)
    if found and int(found[3] or 0) > _MOST_LEAD_S:
        raise ValueError(f"{text!r}: no more than {_MOST_LEAD_S} seconds can be asked for")
    if found and found[2]:
        return signal.Signals(int(found[2])).name.removeprefix("SIG")
    if found is None or found[1].upper() not in _SIGNALS:
        raise ValueError(f"{text!r} names no signal")
    return found[1].upper()
