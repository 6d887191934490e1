"""Scores as a table for people and as JSON for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

from sbtrain_perf.score.scoring import GroupScore

COLUMNS = ("group", "model", "n", "MAPE %", "median %", "in 90 %", "width %")


def table(name: str, scores: Sequence[GroupScore]) -> str:
    """One line per group and model; ours first as the scorer returned them."""
    lifetimes = any(score.brier is not None for score in scores)
    header = [*COLUMNS, *(["Brier"] if lifetimes else [])]
    lines = [header, *(_cells(score, lifetimes=lifetimes) for score in scores)]
    return "\n".join([name, *aligned(lines, left=2)]) + "\n"


def aligned(lines: Sequence[Sequence[str]], *, left: int) -> list[str]:
    """Cells in columns as wide as their widest; the first `left` of them to the left."""
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    return [
        "  ".join(
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    ]


def to_json(name: str, scores: Sequence[GroupScore]) -> str:
    """The object {"dataset", "groups": [GroupScore, ...]} on one line."""
    groups = [dataclasses.asdict(score) for score in scores]
    return json.dumps({"dataset": name, "groups": groups}, allow_nan=False) + "\n"


def _cells(score: GroupScore, *, lifetimes: bool) -> list[str]:
    def number(value: float | None, *, scale: float = 1.0, digits: int = 1) -> str:
        return "-" if value is None else f"{value * scale:.{digits}f}"

    cells = [
        score.group,
        score.model,
        str(score.n),
        number(score.mape),
        number(score.median_ape),
        number(score.coverage90, scale=100),
        number(score.mean_width, scale=100),
    ]
    return [*cells, number(score.brier, digits=4)] if lifetimes else cells
