"""Slurm's host lists: ``rack[1-2]n[01-03,7],login`` to names and back.

Reads what Slurm reads: several brackets in a name, the last one at its end, zero padding,
commas inside and outside brackets, blanks and newlines between names. Names come in Slurm's
own order, because that order numbers the nodes of a job: the last bracket runs fastest, then
the first, the second, and so on. A bracket that is never closed or was never opened, in
which Slurm sees a part of a name, is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product
from typing import NoReturn

from sbtrain_jobs.errors import LaunchError

MAX_HOSTS = 1_000_000
_MAX_IN_ONE_RANGE = 65_536  # Slurm refuses longer ones
_MAX_DIGITS = 18  # a number that Slurm keeps in 64 bits

# As strtoul takes them: blanks and a sign in front count as digits of the width.
_RANGE = re.compile(r"(\s*\+?\d+)(?:-(\s*\+?\d+)?)?", re.ASCII)
_NUMBERED = re.compile(rf"(.*?)(\d{{1,{_MAX_DIGITS}}})", re.ASCII | re.DOTALL)
_SEPARATOR = re.compile(r"[,\s]+")


def expand(text: str, *, limit: int = MAX_HOSTS) -> tuple[str, ...]:
    """The names in a host list, in Slurm's order, repeated where the list repeats them.

    Raises:
        LaunchError: a bracket or a range is not well formed, or names more than `limit`.
    """
    hosts: list[str] = []
    for word in _words(text):
        hosts.extend(_expand_word(word, whole=text, limit=limit - len(hosts)))
    return tuple(hosts)


def compress(hosts: Iterable[str]) -> str:
    """A host list that names these hosts in this order.

    Raises:
        LaunchError: a name holds a comma, a blank or a bracket, or is empty.
    """
    words: list[str] = []
    prefix: str | None = None
    ranges: list[tuple[str, int]] = []  # first number as written, how many follow it

    def finish() -> None:
        if prefix is not None and ranges:
            words.append(prefix + _written(ranges))

    for host in hosts:
        if not host or re.search(r"[][,\s]", host):
            raise LaunchError(f"{host!r} is not the name of a node")
        numbered = _NUMBERED.fullmatch(host)
        if numbered is None:
            finish()
            prefix, ranges = None, []
            words.append(host)
            continue
        if numbered[1] != prefix:
            finish()
            prefix, ranges = numbered[1], []
        _append(ranges, numbered[2])
    finish()
    return ",".join(words)


def _append(ranges: list[tuple[str, int]], number: str) -> None:
    if ranges:
        first, more = ranges[-1]
        follows = str(int(first) + more + 1).zfill(len(first))
        if number == follows and more + 1 < _MAX_IN_ONE_RANGE:
            ranges[-1] = (first, more + 1)
            return
    ranges.append((number, 0))


def _written(ranges: list[tuple[str, int]]) -> str:
    parts = [
        first if more == 0 else f"{first}-{str(int(first) + more).zfill(len(first))}"
        for first, more in ranges
    ]
    return parts[0] if len(parts) == 1 and ranges[0][1] == 0 else f"[{','.join(parts)}]"


def _words(text: str) -> Iterator[str]:
    """Split at the commas and blanks that stand outside brackets."""
    depth = start = 0
    for position, character in enumerate(text):
        if character == "[":
            depth += 1
            if depth > 1:
                _refuse(text, "a bracket opens inside another")
        elif character == "]":
            depth -= 1
            if depth < 0:
                _refuse(text, "a bracket closes that was never opened")
        elif depth == 0 and _SEPARATOR.fullmatch(character):
            if position > start:
                yield text[start:position]
            start = position + 1
    if depth:
        _refuse(text, "a bracket is never closed")
    if start < len(text):
        yield text[start:]


def _expand_word(word: str, *, whole: str, limit: int) -> Iterator[str]:
    pieces = re.split(r"\[([^]]*)\]", word)
    literals, brackets = pieces[::2], [_Numbers(inner, whole) for inner in pieces[1::2]]
    if brackets and literals[-1]:
        _refuse(whole, f"{literals[-1]!r} stands behind a bracket")
    total = 1
    for numbers in brackets:
        total *= numbers.count
    if total > limit:
        _refuse(whole, "it names too many hosts")
    if not brackets:
        yield word
        return
    # Outer to inner: the last but one, ..., the first, the last.
    order = [*range(len(brackets) - 2, -1, -1), len(brackets) - 1]
    for chosen in product(*(brackets[index] for index in order)):
        numbers_by_place = dict(zip(order, chosen, strict=True))
        yield literals[0] + "".join(
            numbers_by_place[place] + literals[place + 1] for place in range(len(brackets))
        )


class _Numbers:
    """What stands between two brackets: numbers and ranges, zero padded as written."""

    __slots__ = ("_ranges", "count")

    def __init__(self, inner: str, whole: str) -> None:
        self._ranges: list[tuple[int, int, int]] = []
        for part in inner.split(","):
            matched = _RANGE.fullmatch(part)
            if matched is None:
                _refuse(whole, f"{part!r} is not a number or a range")
            first, last = int(matched[1]), int(matched[2] or matched[1])
            if last < first:
                _refuse(whole, f"the range {part} runs backwards")
            if last - first >= _MAX_IN_ONE_RANGE:
                _refuse(whole, f"the range {part} names too many hosts")
            self._ranges.append((first, last, len(matched[1])))
        self.count = sum(last - first + 1 for first, last, _ in self._ranges)

    def __iter__(self) -> Iterator[str]:
        for first, last, width in self._ranges:
            for number in range(first, last + 1):
                yield str(number).zfill(width)


def _refuse(text: str, reason: str) -> NoReturn:
    shown = text if len(text) <= 80 else text[:77] + "..."
    raise LaunchError(
        f"cannot read the node list {shown!r}: {reason}",
        hint="a node list looks like node[01-04,7] or rack[1-2]n[1-8],login1",
    )
