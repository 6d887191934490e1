"""How a benchmark ends: its rows as a table and as JSON, and its exit status."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

BUILD = Path(__file__).resolve().parent.parent / "build"


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """One figure beside its yardstick of the same run. bar None: shown, nothing is asked;
    otherwise the value may not exceed it."""

    what: str
    yardstick: str
    value: float
    bar: float | None = None

    @property
    def met(self) -> bool:
        return self.bar is None or self.value <= self.bar


def finish(name: str, rows: Sequence[BenchRow]) -> int:
    """Print the table, write build/bench-NAME.json; 1 when a bar is missed, else 0."""
    head = ("what", "yardstick", "value", "bar", "met")
    cells = [head] + [
        (
            row.what,
            row.yardstick,
            f"{row.value:.2f}",
            "-" if row.bar is None else f"{row.bar:g}",
            "yes" if row.met else "NO",
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    for line in cells:
        print("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip())
    BUILD.mkdir(exist_ok=True)
    written = [
        {"what": row.what, "value": row.value, "bar": row.bar, "met": row.met} for row in rows
    ]
    (BUILD / f"bench-{name}.json").write_text(json.dumps(written, indent=2) + "\n")
    return 0 if all(row.met for row in rows) else 1
