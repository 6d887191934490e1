"""Many laws of lifetimes at once: the closed forms of models.lifetime, a law a row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimeTable:
    """Bins of age, shape (laws, bins); a law with fewer bins than another ends in bins of no
    width. caps_s: the age that nothing outlives, shape (laws,)."""

    starts_s: Floats
    widths_s: Floats
    hazards_1_s: Floats
    caps_s: Floats

    @classmethod
    def of(
        cls,
        edges_s: Sequence[Sequence[float]],
        hazards_1_s: Sequence[Sequence[float]],
        caps_s: Sequence[float] | None = None,
    ) -> LifetimeTable:
        """Laws by their edges, and by one more hazard than edges."""
        bins = max(map(len, hazards_1_s), default=1)
        starts, widths, hazards = np.zeros((3, len(hazards_1_s), bins))
        for row, (edges, rates) in enumerate(zip(edges_s, hazards_1_s, strict=True)):
            count = len(edges)
            starts[row, 1 : count + 1] = edges
            widths[row, : count + 1] = np.inf
            widths[row, :count] = starts[row, 1 : count + 1] - starts[row, :count]
            hazards[row, : count + 1] = rates
        never = np.full(len(hazards), np.inf)
        return cls(
            starts_s=starts,
            widths_s=widths,
            hazards_1_s=hazards,
            caps_s=never if caps_s is None else np.array(caps_s, dtype=np.float64),
        )

    def rows(self, at: NDArray[np.intp]) -> LifetimeTable:
        """The laws at indices, which may repeat."""
        return LifetimeTable(
            starts_s=self.starts_s[at],
            widths_s=self.widths_s[at],
            hazards_1_s=self.hazards_1_s[at],
            caps_s=self.caps_s[at],
        )

    @property
    def interrupts(self) -> NDArray[np.bool_]:
        """Whether anything ever ends a law's allocations."""
        return np.asarray(self.hazards_1_s.any(axis=1) | np.isfinite(self.caps_s))

    def struck(self, age_s: Floats) -> Floats:
        """Summed hazard up to an age, shape (laws,); what ends at the cap not counted."""
        return np.asarray(_times(self.hazards_1_s, self._within_s(age_s)).sum(axis=1))

    def survival(self, age_s: Floats) -> Floats:
        """Share of each law that is not yet interrupted at an age, shape (laws,)."""
        return np.where(age_s < self.caps_s, np.exp(-self.struck(age_s)), 0.0)

    def lived_s(self, age_s: Floats) -> Floats:
        """Mean seconds that each law lives up to an age, shape (laws,)."""
        within = self._within_s(np.minimum(age_s, self.caps_s))
        doom = _times(self.hazards_1_s, within)
        before = np.cumsum(doom[:, :-1], axis=1)
        entered = np.exp(-np.hstack([np.zeros((len(doom), 1)), before]))
        safe = np.where(self.hazards_1_s > 0.0, self.hazards_1_s, 1.0)
        lived = np.where(self.hazards_1_s > 0.0, -np.expm1(-doom) / safe, within)
        return np.asarray(_times(entered, lived).sum(axis=1))

    def _within_s(self, age_s: Floats) -> Floats:
        """Seconds of each bin that an age has come through."""
        return np.clip(age_s[:, None] - self.starts_s, 0.0, self.widths_s)


def _times(rates: Floats, seconds: Floats) -> Floats:
    """Their product; 0 where the rate is 0, however long that lasts."""
    return np.multiply(rates, seconds, out=np.zeros_like(rates), where=rates > 0.0)
