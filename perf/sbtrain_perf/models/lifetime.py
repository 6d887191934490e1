"""How long an allocation lives before something interrupts it: a hazard that varies with age.

Lifetimes of preemptible servers are far from exponential: of CM-DARE's 396, a fifth ended in
the first hour, few between, and all at 24 hours. The hazard is constant within bins of age,
so that survival and its integral have closed forms, and independent causes (preemption,
failing nodes, several servers) add up. With one bin and no cap it is the exponential law.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sbtrain_perf.models import Numbers

    Floats = NDArray[np.float64]

CERTAIN_1_S = 1e3  # hazard of an interruption that is certain


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetime:
    """A law of ages at interruption.

    edges_s: where bins of age meet, ascending, above 0. hazards_1_s: interruptions a second
    in each bin, one more than edges. cap_s: the age that nothing outlives (a cloud's 24
    hours, a job's time limit).

    Raises:
        ValueError: lengths, order or signs are not as above.
    """

    hazards_1_s: tuple[float, ...]
    edges_s: tuple[float, ...] = ()
    cap_s: float = math.inf
    _starts_s: Floats = field(init=False, repr=False, compare=False)
    _hazards: Floats = field(init=False, repr=False, compare=False)
    _summed: Floats = field(init=False, repr=False, compare=False)
    _lived_s: Floats = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        starts = np.array((0.0, *self.edges_s))
        hazards = np.array(self.hazards_1_s, dtype=np.float64)
        if len(hazards) != len(starts) or (np.diff(starts) <= 0.0).any():
            raise ValueError("a lifetime needs ascending edges and one more hazard than edges")
        if not np.isfinite(hazards).all() or (hazards < 0.0).any() or self.cap_s <= 0.0:
            raise ValueError(
                "a lifetime's hazards are finite and not negative, its cap above 0"
            )
        widths = np.diff(starts)
        summed = np.concatenate(([0.0], np.cumsum(hazards[:-1] * widths)))
        lived = np.exp(-summed[:-1]) * _lived_within_s(hazards[:-1], widths)
        object.__setattr__(self, "_starts_s", starts)
        object.__setattr__(self, "_hazards", hazards)
        object.__setattr__(self, "_summed", summed)
        object.__setattr__(self, "_lived_s", np.concatenate(([0.0], np.cumsum(lived))))

    @classmethod
    def exponential(cls, hazard_1_s: float, *, cap_s: float = math.inf) -> Lifetime:
        """The same hazard at every age: what Young and Daly assume."""
        return cls(hazards_1_s=(hazard_1_s,), cap_s=cap_s)

    @classmethod
    def surviving(
        cls, edges_s: Sequence[float], survival: Sequence[float], *, cap_s: float = math.inf
    ) -> Lifetime:
        """The law that passes through a survival curve, given at each edge.

        Beyond the last edge the last bin's hazard goes on. A share that falls to 0 does so
        within its bin.
        """
        ends = np.maximum(np.array(survival, dtype=np.float64), 1e-300)
        before = np.concatenate(([1.0], ends[:-1]))
        widths = np.diff(np.array((0.0, *edges_s)))
        hazards = np.clip(np.log(before / ends) / widths, 0.0, CERTAIN_1_S)
        return cls(
            edges_s=tuple(float(edge) for edge in edges_s[:-1]),
            hazards_1_s=tuple(hazards.tolist()),
            cap_s=cap_s,
        )

    def survival(self, age_s: Numbers) -> Floats:
        """Share that is not yet interrupted at an age."""
        age = np.asarray(age_s, dtype=np.float64)
        at = self._bin(age)
        with np.errstate(invalid="ignore"):
            within = self._hazards[at] * (age - self._starts_s[at])
        within = np.where(self._hazards[at] > 0.0, within, 0.0)
        alive = np.exp(-self._summed[at] - within)
        return np.where(age < self.cap_s, alive, 0.0)

    def lived_s(self, age_s: Numbers) -> Floats:
        """Mean seconds lived up to an age: the integral of the survival from 0 to it."""
        age = np.minimum(np.asarray(age_s, dtype=np.float64), self.cap_s)
        at = self._bin(age)
        within = _lived_within_s(self._hazards[at], age - self._starts_s[at])
        entered = np.exp(-self._summed[at])
        with np.errstate(invalid="ignore"):
            return self._lived_s[at] + np.where(entered > 0.0, entered * within, 0.0)

    @property
    def mean_s(self) -> float:
        """Mean lifetime; infinite where part of the allocations is never interrupted."""
        return float(self.lived_s(math.inf))

    def joined(self, other: Lifetime) -> Lifetime:
        """Whichever of two independent interruptions comes first: hazards add."""
        edges = tuple(sorted({*self.edges_s, *other.edges_s}))
        starts = np.array((0.0, *edges))
        summed = self._hazards[self._bin(starts)] + other._hazards[other._bin(starts)]
        return Lifetime(
            edges_s=edges,
            hazards_1_s=tuple(summed.tolist()),
            cap_s=min(self.cap_s, other.cap_s),
        )

    def first_of(self, servers: float) -> Lifetime:
        """The first interruption among servers of one law, independent of each other."""
        return Lifetime(
            edges_s=self.edges_s,
            hazards_1_s=tuple((servers * self._hazards).tolist()),
            cap_s=self.cap_s,
        )

    def capped(self, cap_s: float) -> Lifetime:
        """The same law that ends for certain at an age, if not before."""
        return Lifetime(
            edges_s=self.edges_s, hazards_1_s=self.hazards_1_s, cap_s=min(self.cap_s, cap_s)
        )

    def ages_s(self, uniform: Floats) -> Floats:
        """Ages at interruption at the uniform numbers' quantiles, for simulations."""
        doom = -np.log1p(-uniform)
        at = np.searchsorted(self._summed, doom, side="right") - 1
        hazard = self._hazards[at]
        left = doom - self._summed[at]
        with np.errstate(divide="ignore", invalid="ignore"):
            age = np.where(hazard > 0.0, self._starts_s[at] + left / hazard, math.inf)
        return np.minimum(age, self.cap_s)

    def _bin(self, age: Floats) -> NDArray[np.intp]:
        return np.asarray(np.searchsorted(self._starts_s, age, side="right") - 1)


def _lived_within_s(hazard: Floats, width_s: Floats) -> Floats:
    """`(1 - exp(-h w)) / h`: seconds lived within a bin by one who enters it; w where h = 0."""
    safe = np.where(hazard > 0.0, hazard, 1.0)
    with np.errstate(invalid="ignore"):
        spent = np.where(hazard > 0.0, -np.expm1(-safe * width_s) / safe, width_s)
    return np.asarray(spent, dtype=np.float64)
