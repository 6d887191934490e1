"""Data folders for tests of the scorers, written as CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path


def write(
    folder: Path,
    name: str,
    rows: Sequence[Mapping[str, object]],
    *,
    encoding: str = "utf-8",
) -> Path:
    """The folder, with the rows in its file `name` under the first row's columns."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return folder
