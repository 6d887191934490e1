"""Lifetimes of preemptible servers: regions left out, hours left out, another campaign."""

from __future__ import annotations

import csv
import math
import statistics
from pathlib import Path

from accuracy_checks.checking import Cells, Check, Plot, write_fold
from sbtrain_perf.fitting.lifetime import CAP_H
from sbtrain_perf.score import cmdare_lifetime
from sbtrain_perf.score.metrics import Point
from sbtrain_perf.score.scoring import GroupScore

FILE = cmdare_lifetime.FILE
TDL = "tdl/lifetimes.csv"
KNOWN_HOURS = {1, 4, 8, 12, 20}  # of a region whose other hours are asked for
NOTE = "root of the Brier score, in points of survival"


def _regions(data: Path, scratch: Path) -> list[tuple[Path, Path]]:
    folds = []
    for place in dict.fromkeys(row.place for row in cmdare_lifetime.read_aged(data)):

        def side(row: Cells, place: tuple[str, str] = place) -> str:
            return "score" if (row["gpu"], row["region"]) == place else "fit"

        folds.append(write_fold(data, scratch / "regions" / "-".join(place), {FILE: side}))
    return folds


def _hours(data: Path, scratch: Path) -> tuple[Path, Path]:
    def side(row: Cells) -> str:
        return "fit" if int(row["hour"]) in KNOWN_HOURS else "score"

    return write_fold(data, scratch / "hours", {FILE: side})


def plots(data: Path, scratch: Path) -> list[Plot]:
    points: list[Point] = []
    for fit, held in _regions(data, scratch):
        hours = [row.hour for row in cmdare_lifetime.read_aged(held)]
        ours = cmdare_lifetime.points(fit, held)["ours"]
        points += [ours[at] for at, hour in enumerate(hours) if hour <= CAP_H]
    return [
        Plot(
            name="cmdare-lifetime",
            title="Servers that still run after 1 to 24 hours, region left out",
            unit="share",
            series={"regions": points},
        )
    ]


def checks(data: Path, scratch: Path) -> list[Check]:
    regions = [row for fold in _regions(data, scratch) for row in cmdare_lifetime.score(*fold)]
    hours = cmdare_lifetime.score(*_hours(data, scratch))
    return [
        _line("lifetime, unseen region", regions, "kaplan-meier of its GPU"),
        _line("lifetime, 5 known hours, the others", hours, "kaplan-meier of its region"),
        _line(
            "lifetime, another campaign's zones",
            cmdare_lifetime.score(*_other_campaign(data, scratch)),
            "kaplan-meier of its GPU",
        ),
    ]


def _line(what: str, scores: list[GroupScore], rival: str) -> Check:
    def of(model: str) -> list[GroupScore]:
        return [score for score in scores if score.model == model]

    def error(model: str) -> float:
        return 100.0 * math.sqrt(statistics.fmean(score.brier or 0.0 for score in of(model)))

    covered = [score.coverage90 for score in of("ours") if score.coverage90 is not None]
    return Check(
        what=what,
        value=error("ours"),
        n=sum(score.n for score in of("ours")),
        coverage90=statistics.fmean(covered),
        check_coverage=False,  # the hours of a region stand or fall together
        yardstick=f"exponential {error('exponential'):.1f}, {rival} {error(rival):.1f}",
        note=NOTE,
    )


def _other_campaign(data: Path, scratch: Path) -> tuple[Path, Path]:
    """CM-DARE's regions, and the transient-learning servers of February 2019 in their form."""
    fit, held = write_fold(data, scratch / "campaign", {FILE: lambda _: "fit"})
    ages: dict[tuple[str, str], list[float]] = {}
    with (data / TDL).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["quality"] == "full":
                ages.setdefault((row["gpu"], row["zone"]), []).append(float(row["lifetime_h"]))
    with (held / FILE).open("a", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        for (gpu, zone), lived in ages.items():
            for hour in range(1, CAP_H + 1):
                ended = sum(age < hour for age in lived)
                writer.writerow((gpu, zone, hour, ended / len(lived), ended, len(lived)))
    return fit, held
