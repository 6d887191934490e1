"""CSV files of a data folder as columns, without pandas; a missing file is an empty table."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from sbtrain_perf.errors import SbtrainError

T = TypeVar("T")

LEAST, MOST = 1e-6, 1e9  # of times in seconds, speeds a second and sizes in megabytes
POSITIVE = "times, speeds and sizes are above 0: correct the cell or remove the row"
MOST_PARAMETERS = 10**12
MOST_SERVERS = 1_000  # of one cluster, as for its workers and nodes
MOST_WORKERS = 10_000
ROUNDING = 1e-6  # of shares that were printed
FLAGS = {"true": True, "1": True, "false": False, "0": False}


class ScoreError(SbtrainError):
    """A data folder cannot be scored: a column is missing or a cell is not what it must be."""

    exit_code = 7


def nothing_to_fit(folder: Path, name: str, *, what: str = "rows") -> ScoreError:
    """The error of a fit folder whose file `name` has none of what a prediction needs."""
    return ScoreError(
        f"--fit: {folder} has no {what} in {name}",
        hint="--fit must hold the training rows: nothing is predicted without any",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRow:
    """One line of a CSV file; source names the file and line for messages.

    Every method raises ScoreError where the cell is not what it returns; those named
    optional_... give None where the cell is empty or the file has no such column.
    """

    source: str
    cells: dict[str, str]

    def text(self, column: str) -> str:
        """The cell without surrounding blanks; the column must be there."""
        if column not in self.cells:
            names = ", ".join(name for name in self.cells if name)
            raise ScoreError(
                f"{self.source}: no column {column!r}", hint=f"columns found: {names}"
            )
        return self.optional_text(column)

    def optional_text(self, column: str) -> str:
        """The cell without surrounding blanks, or "" where there is none."""
        return (self.cells.get(column) or "").strip()

    def name(self, column: str) -> str:
        """Text that is not empty."""
        return self._needed(column, self.text(column) or None)

    def number(self, column: str) -> float:
        """A finite number."""
        return self._needed(column, self.optional(column))

    def optional(self, column: str) -> float | None:
        """A finite number."""
        cell = self.optional_text(column)
        if not cell:
            return None
        try:
            value = float(cell)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.wrong(column, "is not a finite number")
        return value

    def positive(self, column: str) -> float:
        """A time, speed or size, 1e-6 to 1e9: above 0 and of this world."""
        return self._needed(column, self.optional_positive(column))

    def optional_positive(self, column: str) -> float | None:
        """A time, speed or size as of `positive`."""
        value = self.optional(column)
        if value is not None and not LEAST <= value <= MOST:
            raise self.wrong(column, f"is not from {LEAST:g} to {MOST:g}", hint=POSITIVE)
        return value

    def whole(self, column: str, *, least: int = 1, most: int = MOST_PARAMETERS) -> int:
        """A whole number from least to most."""
        return self._needed(column, self.optional_whole(column, least=least, most=most))

    def optional_whole(
        self, column: str, *, least: int = 1, most: int = MOST_PARAMETERS
    ) -> int | None:
        """A whole number from least to most."""
        value = self.optional(column)
        if value is None:
            return None
        if not least <= value <= most or value != round(value):
            raise self.wrong(column, f"is not a whole number from {least} to {most}")
        return round(value)

    def share(self, column: str) -> float:
        """A share of a whole, 0 to 1."""
        value = self.number(column)
        if not -ROUNDING <= value <= 1.0 + ROUNDING:
            raise self.wrong(column, "is not a share from 0 to 1")
        return min(max(value, 0.0), 1.0)

    def flag(self, column: str) -> bool:
        """true or 1, false or 0; capital letters do not matter."""
        cell = self.text(column)
        if cell.lower() not in FLAGS:
            raise self.wrong(column, "is neither true nor false", hint="write True or False")
        return FLAGS[cell.lower()]

    def wrong(self, column: str, what: str, *, hint: str = "") -> ScoreError:
        """The error of a cell that says `what`, with its file, line, column and value."""
        return ScoreError(
            f"{self.source}: {column} = {self.optional_text(column)!r} {what}",
            hint=hint or "correct the cell or remove the row",
        )

    def _needed(self, column: str, value: T | None) -> T:
        if value is None:
            self.text(column)
            raise ScoreError(
                f"{self.source}: column {column!r} is empty",
                hint="every row that is fitted or scored needs it",
            )
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The rows of one file."""

    rows: tuple[ScoreRow, ...]

    def __iter__(self) -> Iterator[ScoreRow]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, keep: Callable[[ScoreRow], bool]) -> Table:
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
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.DictReader(file)
            return Table(
                rows=tuple(
                    ScoreRow(source=f"{path}:{lines.line_num}", cells=cells) for cells in lines
                )
            )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ScoreError(f"cannot read {path}: {error}", hint="a CSV file in UTF-8") from error
