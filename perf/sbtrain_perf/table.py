"""Rows of text as a table that fits a width, and prose that does."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 100  # where there is no terminal
_LEAST_LAST = 16  # columns in which a long last cell is still a pleasure to read
_SPACE = "\0"  # one at which a line must not be broken
_UNIT = re.compile(  # the blanks of `42 s`, and that between the parts of `3 h 31 min`
    r"(?<=\d) (?=(?:s|min|h|d|x|%)(?!\w))"
    r"|(?<=\d [hd]) (?=\d+ (?:h|min)(?!\w))|(?<=\d min) (?=\d+ s(?!\w))"
)
_WHOLE = 24  # characters of a cell that stays on one line with its title


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """right: its cells stand at the right, as numbers do."""

    title: str
    right: bool = False


def laid_out(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int, lead: int = 1
) -> list[list[str]]:
    """The lines of the head, then those of each row.

    A row is one line; where only the last column is too wide its text goes on below itself;
    where the rest is, every row is a block: its first `lead` cells, and below them the others
    with their titles, but for empty ones and dashes. A block needs no head. Only a first cell
    that is wider than the whole is cut.
    """
    rows = [tuple(cell.strip() for cell in row) for row in rows]
    head = tuple(column.title for column in columns)
    widths = [max(map(len, cells)) for cells in zip(head, *rows, strict=True)]
    longest = max((len(word) for row in rows for word in row[-1].split()), default=0)
    for gap in (2, 1):
        before = sum(widths[:-1]) + gap * (len(widths) - 1)
        last = widths[-1] if gap == 2 else min(widths[-1], max(longest, _LEAST_LAST))
        if before + last <= width:
            break
    else:
        return [[], *(_block(head, row, width=width, lead=lead) for row in rows)]
    left = width - before
    return [_line(columns, row, widths, gap=gap, left=left) for row in (head, *rows)]


def wrapped(
    text: str, *, width: int, indent: str = "", hanging: str | None = None
) -> list[str]:
    """Lines of at most `width` columns; a number keeps its unit.

    hanging: what lines after the first begin with; two columns more than `indent` if None.
    """
    lines = textwrap.wrap(
        _UNIT.sub(_SPACE, text),
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  " if hanging is None else hanging,
        break_on_hyphens=False,
        break_long_words=False,
    )
    return [line.replace(_SPACE, " ") for line in lines]


def _line(
    columns: Sequence[Column], row: Sequence[str], widths: Sequence[int], *, gap: int, left: int
) -> list[str]:
    *cells, last = (
        cell.rjust(size) if column.right else cell.ljust(size)
        for column, cell, size in zip(columns, row, widths, strict=True)
    )
    start = "".join(cell + " " * gap for cell in cells)
    if len(last.rstrip()) <= left:
        return [(start + last).rstrip()]
    first, *more = wrapped(last.strip(), width=left, hanging="")
    return [start + first, *(" " * len(start) + line for line in more)]


def _block(head: Sequence[str], row: Sequence[str], *, width: int, lead: int) -> list[str]:
    said = [
        f"{title} {cell}".strip().replace(" ", _SPACE, -1 if len(cell) <= _WHOLE else 1)
        for title, cell in zip(head[lead:], row[lead:], strict=True)
        if cell not in ("", "-")
    ]
    lines = wrapped(", ".join(said), width=width, indent="    ", hanging="    ")
    first = " ".join(cell or " " for cell in row[:lead]).rstrip()
    return [*textwrap.wrap(first, width, break_on_hyphens=False), *lines]
