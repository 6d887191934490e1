"""What a check returns, how folds are laid out on disk, and scores pooled over folds."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sbtrain_perf.score.metrics import Point, summarise
from sbtrain_perf.score.scoring import GroupScore

Cells = Mapping[str, str]
Side = Callable[[Cells], str]  # "fit", "score", "both" or "neither"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """The planner's own figure of a check, by the same measure: the same rows laid out as
    runs, learnt by refit and planned (accuracy_checks.replay). value None: no replay is
    possible, note says why. n: rows that could be planned."""

    value: float | None = None
    coverage90: float | None = None
    n: int = 0
    note: str = ""

    @classmethod
    def of(cls, points: Sequence[Point], *, note: str = "") -> Planner:
        found = summarise("", "planner", points)
        return cls(
            value=found.mape,
            coverage90=found.coverage90,
            n=found.n,
            note=note,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the table.

    value is the scorer's (sbtrain_perf.score, sbtrain_perf.regret), a mean error in per cent
    unless `what` says otherwise; None where the planner's alone is shown. bar None: shown for
    comparison, nothing is asked; a bar is asked of the scorer. at_least: the value must reach
    the bar, not stay under it. coverage90 is asked to lie in 0.85..0.95 where check_coverage
    is set.
    """

    what: str
    value: float | None
    planner: Planner
    bar: float | None = None
    n: int = 0
    yardstick: str = ""
    coverage90: float | None = None
    check_coverage: bool = True
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool:
        if self.bar is None or self.value is None:
            return self.bar is None
        return self.value >= self.bar if self.at_least else self.value <= self.bar

    @property
    def covered(self) -> bool:
        if self.coverage90 is None or not self.check_coverage:
            return True
        return 0.85 <= self.coverage90 <= 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Predicted against measured of our model on left-out rows; series by their label."""

    name: str  # of the file
    title: str
    unit: str
    series: Mapping[str, Sequence[Point]]


class CheckModule(Protocol):
    """plots is optional."""

    def checks(self, data: Path, scratch: Path) -> list[Check]: ...

    def plots(self, data: Path, scratch: Path) -> list[Plot]: ...


def write_fold(
    data: Path, folder: Path, files: Mapping[str, Side], *, whole: Sequence[str] = ()
) -> tuple[Path, Path]:
    """Lay out folder/fit and folder/score: each file's rows as its function says.

    whole: files that both sides get in full (features).
    """
    sides = {side: folder / side for side in ("fit", "score")}
    for name, side_of in {**files, **dict.fromkeys(whole, lambda _: "both")}.items():
        source = data / name
        with source.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            fields, rows = list(reader.fieldnames or ()), list(reader)
        for side, target in sides.items():
            kept = [row for row in rows if side_of(row) in (side, "both")]
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, fields)
                writer.writeheader()
                writer.writerows(kept)
    return sides["fit"], sides["score"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """A model's mean error and coverage over all rows of all folds."""

    n: int
    mape: float
    coverage90: float | None


def pool(
    scores: Iterable[GroupScore], *, group: str | None = None, model: str = "ours"
) -> Pooled:
    """Means weighted by rows: of one group in several folds, or of all groups."""
    kept = [s for s in scores if group in (None, s.group) and s.model == model]
    rows = sum(score.n for score in kept)
    covered = [score.coverage90 for score in kept]
    return Pooled(
        n=rows,
        mape=sum((score.mape or 0.0) * score.n for score in kept) / rows,
        coverage90=None
        if None in covered
        else sum((score.coverage90 or 0.0) * score.n for score in kept) / rows,
    )


def values(data: Path, name: str, column: str) -> list[str]:
    """The distinct values of a column, in the file's order."""
    with (data / name).open(encoding="utf-8", newline="") as file:
        return list(dict.fromkeys(row[column] for row in csv.DictReader(file)))
