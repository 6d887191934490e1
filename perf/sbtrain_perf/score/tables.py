"""CSV files of a data folder as columns, without pandas; a missing file is an empty table."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sbtrain_perf.errors import SbtrainError


class ScoreError(SbtrainError):
    """A data folder cannot be scored: a column is missing or a cell is not a number."""

    exit_code = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of a CSV file; source names the file and line for messages."""

    source: str
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """Raises ScoreError when the file has no such column."""
        try:
            return self.cells[column].strip()
        except (KeyError, AttributeError):
            raise ScoreError(
                f"{self.source}: no column {column!r}",
                hint=f"columns found: {', '.join(map(str, self.cells))}",
            ) from None

    def number(self, column: str) -> float:
        """Raises ScoreError when the cell is empty or not a finite number."""
        value = self.optional(column)
        if value is None:
            raise ScoreError(
                f"{self.source}: column {column!r} is empty",
                hint="every row that is fitted or scored needs this number",
            )
        return value

    def optional(self, column: str) -> float | None:
        """The number in the cell, or None where the cell is empty or the column missing."""
        cell = (self.cells.get(column) or "").strip()
        if not cell:
            return None
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ScoreError(
                f"{self.source}: {column} = {cell!r} is not a finite number",
                hint="correct the cell or remove the row",
            )
        return value

    def whole(self, column: str) -> int:
        """Raises ScoreError when the cell is empty or not a number."""
        return round(self.number(column))


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows of one file."""

    rows: tuple[Row, ...]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, keep: Callable[[Row], bool]) -> Table:
        return Table(rows=tuple(row for row in self.rows if keep(row)))


def read_table(folder: Path, name: str) -> Table:
    """The CSV file `name` (relative, with slashes) under `folder`.

    Raises:
        ScoreError: the file exists but cannot be read as text.
    """
    path = folder / name
    if not path.is_file():
        return Table(rows=())
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return Table(
                rows=tuple(
                    Row(source=f"{path}:{number}", cells=cells)
                    for number, cells in enumerate(csv.DictReader(file), start=2)
                )
            )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ScoreError(f"cannot read {path}: {error}", hint="a CSV file in UTF-8") from error
