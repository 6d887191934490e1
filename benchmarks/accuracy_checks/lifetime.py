"""Lifetimes of preemptible servers: regions left out, hours left out, another campaign."""

from __future__ import annotations

import csv
import math
import statistics
from pathlib import Path

import numpy as np

from accuracy_checks.checking import Cells, Check, Planner, Plot, write_fold
from accuracy_checks.replay import planned_law
from sbtrain_perf.fitting.lifetime import CAP_H, HOUR_S, EndedByHour
from sbtrain_perf.lifetimes import Lived
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
    folds = _regions(data, scratch)
    regions = [row for fold in folds for row in cmdare_lifetime.score(*fold)]
    known, campaign = _hours(data, scratch), _other_campaign(data, scratch)
    hours = cmdare_lifetime.score(*known)
    zones = cmdare_lifetime.score(*campaign)
    of_gpu, unlearnt = "kaplan-meier of its GPU", "learns nothing across partitions"
    return [
        _line("lifetime, unseen region", regions, _planned(*folds, note=unlearnt), of_gpu),
        _line(
            "lifetime, 5 known hours, the others",
            hours,
            _planned(known, note="deaths halfway between the known hours"),
            "kaplan-meier of its region",
        ),
        _line(
            "lifetime, another campaign's zones",
            zones,
            _planned(campaign, note=unlearnt),
            of_gpu,
        ),
    ]


def _planned(*folds: tuple[Path, Path], note: str) -> Planner:
    """Laws as refit learns them from attempts of one partition; past the cap none is left."""
    scores = []
    for fit, held in folds:
        fitted = cmdare_lifetime.ended_by_hour(cmdare_lifetime.read_aged(fit))
        squares: dict[tuple[str, str], list[float]] = {}
        for row in cmdare_lifetime.read_aged(held):
            law = planned_law(_lived(fitted[row.place]) if row.place in fitted else [])
            alive = float(law.survival(np.array([HOUR_S * row.hour]))[0])
            off = (alive if row.hour <= CAP_H else 0.0) - row.survival
            squares.setdefault(row.place, []).append(off**2)
        scores += [statistics.fmean(one) for one in squares.values()]
    return Planner(value=100.0 * math.sqrt(statistics.fmean(scores)), note=note)


def _lived(group: EndedByHour) -> list[Lived]:
    """The servers as attempts: dead halfway in their span of hours, or alive at the last."""
    ages_h = [
        (first - 1 + last) / 2.0 for first, last, _, died in group.spans() for _ in range(died)
    ]
    alive = group.servers - len(ages_h)
    ended = [True] * len(ages_h) + [False] * alive
    ages_h += [float(group.hours[-1])] * alive
    return [
        Lived(
            run_id=f"run-{at:06}",
            attempt=0,
            cluster="public",
            partition="spot",
            age_s=HOUR_S * age_h,
            preempted=preempted,
        )
        for at, (age_h, preempted) in enumerate(zip(ages_h, ended, strict=True))
    ]


def _line(what: str, scores: list[GroupScore], planner: Planner, rival: str) -> Check:
    def of(model: str) -> list[GroupScore]:
        return [score for score in scores if score.model == model]

    def error(model: str) -> float:
        return 100.0 * math.sqrt(statistics.fmean(score.brier or 0.0 for score in of(model)))

    covered = [score.coverage90 for score in of("ours") if score.coverage90 is not None]
    return Check(
        what=what,
        value=error("ours"),
        planner=planner,
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
