"""cmdare-lifetime: how many of a region's preemptible servers still run, by hour.

A region that --fit does not know is predicted from the others, those of its GPU above all; of
one that it knows in part, the missing hours are drawn between (or after) the known ones.
Nothing but gpu, region, hour and the number of servers is read of the scored rows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sbtrain_perf.fitting.conformal import LEVEL
from sbtrain_perf.fitting.lifetime import CAP_H, EndedByHour, LifetimeBelief, fit_prior
from sbtrain_perf.fitting.lifetime_paths import draw_alive
from sbtrain_perf.score.metrics import Point
from sbtrain_perf.score.scoring import GroupScore
from sbtrain_perf.score.tables import MOST_WORKERS, read_table

Floats = NDArray[np.float64]

NAME = "cmdare-lifetime"
FILE = "cmdare/lifetime_cdf.csv"
DRAWS = 1000
SEED = 20200708
MOST_HOURS = 10_000
USUAL_SERVERS = 30  # where a row does not say how many there were
ROUNDING = 1e-6  # the file's shares have nine digits
Place = tuple[str, str]  # GPU and region


@dataclass(frozen=True, slots=True, kw_only=True)
class Aged:
    """A line of lifetime_cdf.csv: the share of servers that still ran after `hour` hours."""

    place: Place
    hour: int
    servers: int
    survival: float


def score(fit_dir: Path, score_dir: Path) -> list[GroupScore]:
    """One group per "gpu/region".

    brier is the mean over the group's rows (hours) of the squared difference between the
    predicted survival and the measured share of servers that still ran, both 0 to 1: the
    part of Brier's score that a model can lower; what single servers add to it,
    S (1 - S), is the same for every model. All rows count, also those past the cap of 24
    hours, where every model predicts 0 by the published rule. coverage90 and mean_width
    are of the rows up to the cap, the width in shares of the servers (absolute). mape
    and median_ape are None.
    """
    by_model = points(fit_dir, score_dir)
    scored = read_aged(score_dir)
    scores = []
    for place in dict.fromkeys(row.place for row in scored):
        for model, predicted in by_model.items():
            kept = [
                (row, predicted[at])
                for at, row in enumerate(scored)
                if row.place == place and at in predicted
            ]
            if kept:
                scores.append(_summarise("/".join(place), model, kept))
    return scores


def _summarise(group: str, model: str, kept: Sequence[tuple[Aged, Point]]) -> GroupScore:
    open_points = [point for row, point in kept if row.hour <= CAP_H]
    covered = [point.covered for point in open_points if point.covered is not None]
    widths = [
        point.high - point.low
        for point in open_points
        if point.high is not None and point.low is not None
    ]
    return GroupScore(
        group=group,
        model=model,
        n=len(kept),
        mape=None,
        median_ape=None,
        coverage90=statistics.fmean(map(bool, covered)) if covered else None,
        mean_width=statistics.fmean(widths) if widths else None,
        brier=statistics.fmean((p.predicted - p.measured) ** 2 for _, p in kept),
    )


def points(fit_dir: Path, score_dir: Path) -> dict[str, dict[int, Point]]:
    """Predicted survival by model and index of the scored row.

    Yardsticks: "exponential" (one hazard up to the cap, of the region where it is known,
    else of its GPU), "kaplan-meier of its GPU" (of all GPUs where the GPU is unknown), and
    "kaplan-meier of its region" where --fit knows some of its hours.
    """
    fitted, scored = ended_by_hour(read_aged(fit_dir)), read_aged(score_dir)
    result: dict[str, dict[int, Point]] = {
        name: {}
        for name in (
            "ours",
            "exponential",
            "kaplan-meier of its GPU",
            "kaplan-meier of its region",
        )
    }
    beliefs: dict[str, LifetimeBelief] = {}
    for place in dict.fromkeys(row.place for row in scored):
        rows = {at: row for at, row in enumerate(scored) if row.place == place}
        own = [fitted[place]] if place in fitted else []
        alike = [group for group in fitted.values() if group.gpu == place[0]]
        pool = alike or list(fitted.values())
        servers = own[0].servers if own else next(iter(rows.values())).servers
        asked = own[0] if own else EndedByHour(gpu=place[0], region=place[1], servers=servers)
        if place[0] not in beliefs:
            beliefs[place[0]] = fit_prior(list(fitted.values()), gpu=place[0]).belief()
        result["ours"] |= _ours(rows, asked, beliefs[place[0]])
        result["exponential"] |= _plain(rows, _exponential(own or pool))
        result["kaplan-meier of its GPU"] |= _plain(rows, _kaplan_meier(pool))
        if own:
            result["kaplan-meier of its region"] |= _plain(rows, _kaplan_meier(own))
    return result


def read_aged(folder: Path) -> list[Aged]:
    return [
        Aged(
            place=(row.name("gpu"), row.name("region")),
            hour=row.whole("hour", most=MOST_HOURS),
            servers=row.optional_whole("n_servers", most=MOST_WORKERS) or USUAL_SERVERS,
            survival=1.0 - row.share("cdf_lifetime"),
        )
        for row in read_table(folder, FILE)
    ]


def ended_by_hour(rows: Sequence[Aged]) -> dict[Place, EndedByHour]:
    """The counts of each region up to the cap; what falls from one hour to the next is
    taken as no change."""
    groups: dict[Place, dict[int, Aged]] = {}
    for row in rows:
        if row.hour <= CAP_H:
            groups.setdefault(row.place, {})[row.hour] = row
    result = {}
    for place, by_hour in groups.items():
        hours = sorted(by_hour)
        servers = max(row.servers for row in by_hour.values())
        ended = [round((1.0 - by_hour[hour].survival) * servers) for hour in hours]
        result[place] = EndedByHour(
            gpu=place[0],
            region=place[1],
            servers=servers,
            hours=tuple(hours),
            ended=tuple(np.maximum.accumulate(ended).tolist()),
        )
    return result


def _ours(
    rows: Mapping[int, Aged], asked: EndedByHour, belief: LifetimeBelief
) -> dict[int, Point]:
    generator = np.random.default_rng(SEED)
    counts = draw_alive(belief, asked, generator, draws=DRAWS)
    low, high = (side / asked.servers for side in _shortest(counts))
    mean = counts.mean(axis=0) / asked.servers
    return {
        at: Point(
            measured=row.survival,
            predicted=float(mean[row.hour - 1]),
            low=float(low[row.hour - 1]) - ROUNDING,
            high=float(high[row.hour - 1]) + ROUNDING,
        )
        if row.hour <= CAP_H
        else Point(measured=row.survival, predicted=0.0, low=0.0, high=0.0)
        for at, row in rows.items()
    }


def _shortest(draws: Floats) -> tuple[Floats, Floats]:
    """The shortest intervals that hold 90 % of the draws (first axis).

    Shares are steps of one server: two equal tails would leave out fewer than 10 % wherever
    few servers are in doubt.
    """
    ordered = np.sort(draws, axis=0)
    within = math.ceil(LEVEL * len(ordered))
    reach = ordered[within - 1 :] - ordered[: len(ordered) - within + 1]
    first = reach.argmin(axis=0)[None]
    return (
        np.take_along_axis(ordered, first, axis=0)[0],
        np.take_along_axis(ordered, first + within - 1, axis=0)[0],
    )


def _plain(rows: Mapping[int, Aged], survival: Floats) -> dict[int, Point]:
    return {
        at: Point(
            measured=row.survival,
            predicted=float(survival[row.hour - 1]) if row.hour <= CAP_H else 0.0,
        )
        for at, row in rows.items()
    }


def _exponential(groups: Sequence[EndedByHour]) -> Floats:
    """Survival by hour at one hazard: deaths by hours lived, deaths halfway in their span."""
    deaths = lived_h = 0.0
    for group in groups:
        for first, last, alive, died in group.spans():
            deaths += died
            lived_h += (alive - died / 2.0) * (last - first + 1)
    hazard = deaths / lived_h if lived_h else 0.0
    return np.asarray(np.exp(-hazard * np.arange(1.0, CAP_H + 1.0)))


def _kaplan_meier(groups: Sequence[EndedByHour]) -> Floats:
    """Survival by hour; deaths count at the hour that reports them."""
    deaths, alive = np.zeros(CAP_H), np.zeros(CAP_H)
    for group in groups:
        for first, last, entered, died in group.spans():
            alive[first - 1 : last] += entered
            deaths[last - 1] += died
    share = np.divide(deaths, alive, out=np.zeros(CAP_H), where=alive > 0.0)
    return np.asarray(np.cumprod(1.0 - share))
