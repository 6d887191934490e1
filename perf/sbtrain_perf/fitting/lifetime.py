"""Learning how long allocations live: a hazard for every bin of age, with censoring.

The share that dies within a bin, of those that enter it, has a Beta prior; the later bins'
means share a level of their own for each partition (a few levels with weights). Deaths and
survivals are counts, so that each further lifetime, ended or censored, is learnt exactly by
adding to them: a Beta process (Hjort 1990) with a mixed level. A light Beta allows for
bursts, in which a scheduler takes many servers within one hour. The prior is what other
partitions' lifetimes make most likely (empirical Bayes), those of the same GPU above all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import betaln

from sbtrain_perf.models.lifetime import Lifetime

Floats = NDArray[np.float64]

HOUR_S = 3600.0
CAP_H = 24  # Google's preemptible servers, published
LEVEL_POINTS = 11
MOST_FINER = 8  # bins, each half as wide as the next
LEAST_SHARE, MOST_SHARE = 1e-4, 0.8  # a bin's mean share of deaths, for any level
OTHER_GPU_WEIGHT = 0.5  # of a partition with another GPU, in a prior for one GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimeCounts:
    """What was seen in each bin: deaths, and servers that came through it alive.

    A server censored within a bin has come through a fraction of it. Counts of two sets
    of servers add up.
    """

    deaths: tuple[float, ...]
    survived: tuple[float, ...]

    def added(self, other: LifetimeCounts) -> LifetimeCounts:
        return LifetimeCounts(
            deaths=tuple(a + b for a, b in zip(self.deaths, other.deaths, strict=True)),
            survived=tuple(a + b for a, b in zip(self.survived, other.survived, strict=True)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimeBelief:
    """What is believed of one partition's lifetimes.

    edges_s: ends of the bins; the first begins at 0. deaths, survived: the Betas' two
    parameters, shape (levels, bins). log_weights: of the levels, up to a constant. cap_s:
    the age that nothing outlives, not counted as an interruption.
    """

    edges_s: tuple[float, ...]
    deaths: Floats
    survived: Floats
    log_weights: Floats
    cap_s: float = math.inf

    def after(self, counts: LifetimeCounts) -> LifetimeBelief:
        """The belief once the counts are known. Order does not matter."""
        deaths = self.deaths + np.array(counts.deaths)
        survived = self.survived + np.array(counts.survived)
        gained = betaln(deaths, survived) - betaln(self.deaths, self.survived)
        log_weights = self.log_weights + gained.sum(axis=1)
        return replace(
            self,
            deaths=deaths,
            survived=survived,
            log_weights=log_weights - log_weights.max(),
        )

    def observe(self, ages_s: Sequence[float], *, ended: Sequence[bool]) -> LifetimeBelief:
        """The belief after further lifetimes; those not ended were censored at that age.

        Reaching the cap is an end that was known, hence no death.
        """
        return self.after(count_lifetimes(self.edges_s, ages_s, ended=ended, cap_s=self.cap_s))

    @property
    def weights(self) -> Floats:
        """Probability of each level."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        return np.asarray(weights / weights.sum())

    def survival(self, *, servers: float = 1.0) -> Floats:
        """Probability that all of so many servers outlive the end of each bin; no cap."""
        logs = betaln(self.deaths, self.survived + servers) - betaln(self.deaths, self.survived)
        return np.asarray(self.weights @ np.exp(np.cumsum(logs, axis=1)))

    def predictive(self, *, servers: float = 1.0) -> Lifetime:
        """The law that a next allocation of so many servers is drawn from.

        It ends with the first of its servers. What is unknown is averaged over: this is
        what checkpoint intervals and makespans are chosen by.
        """
        alive = self.survival(servers=servers)
        return Lifetime.surviving(self.edges_s, alive.tolist(), cap_s=self.cap_s)

    def draw_shares(self, generator: np.random.Generator, draws: int) -> Floats:
        """Shares that die within each bin, of those that enter it; shape (draws, bins)."""
        levels = generator.choice(len(self.weights), size=draws, p=self.weights)
        return np.asarray(generator.beta(self.deaths[levels], self.survived[levels]))


def count_lifetimes(
    edges_s: Sequence[float],
    ages_s: Sequence[float],
    *,
    ended: Sequence[bool],
    cap_s: float = math.inf,
) -> LifetimeCounts:
    """Ages at death or at censoring, by bins. Ages beyond the last edge count up to it.

    Raises:
        ValueError: an age is not finite or below 0.
    """
    edges = np.array(edges_s)
    starts = np.concatenate(([0.0], edges[:-1]))
    age, died = np.array(ages_s, dtype=np.float64), np.array(ended, dtype=bool)
    if not (np.isfinite(age) & (age >= 0.0)).all():
        raise ValueError("lifetimes are finite and not below 0")
    died &= (age < cap_s) & (age < edges[-1])
    through = np.clip((age[:, None] - starts) / (edges - starts), 0.0, 1.0)
    at = np.searchsorted(edges, age[died], side="right")
    deaths = np.bincount(at, minlength=len(edges)).astype(np.float64)
    through[np.flatnonzero(died), at] = 0.0  # its bin is a death, no survival
    return LifetimeCounts(
        deaths=tuple(deaths.tolist()), survived=tuple(through.sum(axis=0).tolist())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimePrior:
    """What a partition's lifetimes are like before the first is seen, in hourly bins.

    first_share: mean share that dies in the first hour; first_weight: how many servers'
    worth that is known of one partition. later_1_h: mean share in the second hour, which
    falls with age^-fading; later_weight: the same worth for each later hour. level_sd: of
    the logarithm of a partition's later hazards about these means.
    """

    first_share: float
    first_weight: float
    later_1_h: float
    fading: float
    later_weight: float
    level_sd: float

    def belief(self, *, hours: int = CAP_H, cap_h: float = CAP_H) -> LifetimeBelief:
        """In hourly bins up to `hours`."""
        means = self.mean_shares(hours)
        worth = np.full(hours, self.later_weight)
        worth[0] = self.first_weight
        _, weights = level_points(self.level_sd)
        return LifetimeBelief(
            edges_s=tuple(HOUR_S * hour for hour in range(1, hours + 1)),
            deaths=means * worth,
            survived=(1.0 - means) * worth,
            log_weights=np.log(weights),
            cap_s=HOUR_S * cap_h,
        )

    def mean_shares(self, hours: int) -> Floats:
        """Mean share of deaths of each level in each hour, shape (levels, hours)."""
        levels, _ = level_points(self.level_sd)
        age = (np.arange(2.0, hours + 1.0) - 0.5) / 1.5
        later = levels[:, None] * self.later_1_h * age**-self.fading
        first = np.full((len(levels), 1), self.first_share)
        return np.asarray(np.clip(np.hstack([first, later]), LEAST_SHARE, MOST_SHARE))


def level_points(sd: float) -> tuple[Floats, Floats]:
    """Points and weights of a log-normal law of mean 1 (Gauss-Hermite)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(LEVEL_POINTS)
    points: Floats = np.exp(sd * nodes - sd**2 / 2.0)
    shares: Floats = weights / weights.sum()
    return points, shares


# Our fit (fit_prior) on CM-DARE's lifetimes: 9 partitions of K80, P100 and V100 servers, 306
# in all, hourly up to the cap of 24 hours.
CMDARE_PRIOR = LifetimePrior(
    first_share=0.22,
    first_weight=4.0,
    later_1_h=0.042,
    fading=0.57,
    later_weight=15.5,
    level_sd=0.42,
)


def constant_belief(
    mean_s: float,
    *,
    edges_s: Sequence[float],
    weight: float = 5.0,
    level_sd: float = 0.7,
    cap_s: float = math.inf,
) -> LifetimeBelief:
    """Before anything is known but a mean time to interruption, as a site may state it.

    The hazard is 1/mean_s in every bin, at a level unknown by a factor of two, and each bin
    may depart from it as if `weight` servers had been seen in it. Our own choice.
    """
    levels, weights = level_points(level_sd)
    widths = np.diff(np.array((0.0, *edges_s)))
    means = np.clip(-np.expm1(-levels[:, None] * widths / mean_s), LEAST_SHARE, 0.999)
    return LifetimeBelief(
        edges_s=tuple(edges_s),
        deaths=means * weight,
        survived=(1.0 - means) * weight,
        log_weights=np.log(weights),
        cap_s=cap_s,
    )


def edges_about(mean_s: float) -> tuple[float, ...]:
    """Bins for an expected mean: each twice as wide, from 1/32 of it to 8 times."""
    return tuple(mean_s * 2.0**power for power in range(-5, 4))


def finer_edges(edges_s: Sequence[float], ages_s: Sequence[float]) -> tuple[float, ...]:
    """Bins with more of them below the first, each half as wide, until a few lie below the
    median age at interruption: what was stated may be far from what is."""
    edges = list(edges_s)
    if len(ages_s):
        shortest_s = float(np.median(ages_s)) / 4.0
        while edges[0] > shortest_s and len(edges) < len(edges_s) + MOST_FINER:
            edges.insert(0, edges[0] / 2.0)
    return tuple(edges)


def learn_lifetime(
    stated_mean_s: float,
    ages_s: Sequence[float],
    *,
    ended: Sequence[bool],
    cap_s: float = math.inf,
    edges_s: Sequence[float] = (),
) -> Lifetime:
    """A partition's law, from what its site states and what its own attempts showed.

    Args:
        stated_mean_s: mean seconds to an interruption, or what is assumed of it.
        ages_s: of the allocations when they were interrupted, or else ended.
        ended: whether it was an interruption; a job that was done, failed or was cancelled
            is censored at its age.
        cap_s: a limit that no allocation outlives.
        edges_s: of the bins; about the stated mean where not given.
    """
    edges = edges_s or edges_about(stated_mean_s)
    start = constant_belief(stated_mean_s, edges_s=edges, cap_s=cap_s)
    return start.observe(ages_s, ended=ended).predictive()


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedByHour:
    """How many of a partition's servers had ended by some hours below the cap, ascending."""

    gpu: str
    region: str
    servers: int
    hours: tuple[int, ...] = ()
    ended: tuple[int, ...] = ()

    def spans(self) -> list[tuple[int, int, int, int]]:
        """(first hour, last hour, alive at its begin, deaths within) of each known span."""
        spans, start, before = [], 0, 0
        for hour, ended in zip(self.hours, self.ended, strict=True):
            spans.append((start + 1, hour, self.servers - before, ended - before))
            start, before = hour, ended
        return spans


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spans:
    """All groups' spans as arrays, with the group and the weight of each group."""

    first: NDArray[np.intp]  # bin indices, first inclusive, end exclusive
    end: NDArray[np.intp]
    alive: Floats
    deaths: Floats
    group: NDArray[np.intp]
    weights: Floats


# Before any lifetime: mean and standard deviation of the figures as transformed. Our choice.
_HYPERPRIOR = {
    "first_share": (-1.4, 1.0),  # log odds
    "first_weight": (1.4, 1.0),  # logarithms
    "later_1_h": (-4.0, 1.0),
    "fading": (0.3, 0.3),  # as it is
    "later_weight": (3.0, 1.0),
    "level_sd": (-0.7, 0.5),
}


def fit_prior(
    groups: Sequence[EndedByHour], *, gpu: str = "", hours: int = CAP_H
) -> LifetimePrior:
    """The prior under which the groups' counts are most likely, for a partition of one GPU.

    Groups of other GPUs count OTHER_GPU_WEIGHT; all count alike where none has it. No groups
    give the hyperprior's centre.
    """
    known = any(group.gpu == gpu for group in groups)
    weights = [1.0 if not known or group.gpu == gpu else OTHER_GPU_WEIGHT for group in groups]
    spans = _spans(groups, weights)
    centre, sd = np.array(list(_HYPERPRIOR.values())).T

    def loss(x: Floats) -> float:
        prior = _prior_of(x)
        return 0.5 * float((((x - centre) / sd) ** 2).sum()) - _log_likelihood(
            prior, spans, hours
        )

    if not groups:
        return _prior_of(centre)
    found = minimize(
        loss,
        centre,
        method="L-BFGS-B",
        bounds=list(zip(centre - 4 * sd, centre + 4 * sd, strict=True)),
    )
    return _prior_of(found.x)


def _prior_of(x: Floats) -> LifetimePrior:
    return LifetimePrior(
        first_share=1.0 / (1.0 + math.exp(-x[0])),
        first_weight=math.exp(x[1]),
        later_1_h=math.exp(x[2]),
        fading=float(x[3]),
        later_weight=math.exp(x[4]),
        level_sd=math.exp(x[5]),
    )


def _spans(groups: Sequence[EndedByHour], weights: Sequence[float]) -> _Spans:
    rows = [
        (first - 1, last, alive, deaths, at)
        for at, group in enumerate(groups)
        for first, last, alive, deaths in group.spans()
    ]
    columns = np.array(rows, dtype=np.float64).reshape(-1, 5).T
    return _Spans(
        first=columns[0].astype(np.intp),
        end=columns[1].astype(np.intp),
        alive=columns[2],
        deaths=columns[3],
        group=columns[4].astype(np.intp),
        weights=np.array(weights),
    )


def _log_likelihood(prior: LifetimePrior, spans: _Spans, hours: int) -> float:
    """Of the counts, weighted by group. A span of several hours is one Beta whose mean and
    variance are those of its hours together."""
    means = prior.mean_shares(hours)
    worth = np.full(hours, prior.later_weight)
    worth[0] = prior.first_weight
    nothing = np.zeros((len(means), 1))
    survive = np.hstack([nothing, np.cumsum(np.log1p(-means), axis=1)])
    spread = np.hstack([nothing, np.cumsum(means * (1.0 - means) / (worth + 1.0), axis=1)])
    share = -np.expm1(survive[:, spans.end] - survive[:, spans.first])
    variance = spread[:, spans.end] - spread[:, spans.first]
    span_worth = np.maximum(share * (1.0 - share) / variance - 1.0, 0.1)
    dead, alive = share * span_worth, (1.0 - share) * span_worth
    logs = betaln(dead + spans.deaths, alive + spans.alive - spans.deaths) - betaln(dead, alive)
    by_group = np.zeros((len(means), len(spans.weights)))
    for level, row in enumerate(logs):
        by_group[level] = np.bincount(spans.group, weights=row, minlength=len(spans.weights))
    _, weights = level_points(prior.level_sd)
    top = by_group.max(axis=0)
    mixed = top + np.log(weights @ np.exp(by_group - top))
    return float(mixed @ spans.weights)
