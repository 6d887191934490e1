"""One fit for each thing that is learnt: what its samples share, its terms, how far off.

Per cluster, workload and layout: start-up; per cluster and partition: staging; per workload,
layout, partition and batch: the parameters of the step's closed form; per cluster: checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from sbtrain_perf.coefficients import Base, LearntSpread, OwnRuns, step_key
from sbtrain_perf.measured import Sample, Term
from sbtrain_perf.own_runs import own_runs
from sbtrain_perf.shrinkage import fit_terms, spread_of_fit
from sbtrain_perf.term_forms import TermForm, form_of, own_ratio

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# How far off the unlearnt models may be where a fit starts from them: spread of the logarithm
# of each term, in the order of term_forms. Wider than the shipped spreads, which intervals
# are made of, so that a network or a site unlike all others is still learnt. Our choice.
PRIOR_SD: dict[Term, tuple[float, ...]] = {
    "stage": (0.7, 0.7),
    "start": (0.5, 0.5),
    "step": (1.5, 3.0, 3.0),
    "checkpoint": (0.7, 0.7),
}

Key = tuple[str | int, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFit:
    """The terms that fit one group of samples, in the order of term_forms."""

    terms: tuple[float, ...]
    spread: LearntSpread
    own: tuple[OwnRuns, ...] = ()  # of steps

    def seconds(self, sample: Sample, form: TermForm) -> float:
        """What the fit says of a sample of its key."""
        return form.seconds(np.array(self.terms)) * own_ratio(sample, self.own)


def key_of(sample: Sample) -> Key:
    """What one fit is made for; its first entry is the term."""
    timings = sample.timings
    if sample.term == "stage":
        return "stage", timings.cluster, timings.partition
    if sample.term == "start":
        return "start", timings.cluster, timings.workload, timings.layout
    if sample.term == "checkpoint":
        return "checkpoint", timings.cluster
    return "step", *step_key(timings.plan)


def grouped(items: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    groups: dict[Key, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def fit_group(group: Sequence[Sample], base: Base) -> GroupFit:
    """Samples of one key. Those whose chain takes longer than they did count as short."""
    term = group[0].term
    forms = [form_of(sample, base) for sample in group]
    seconds = np.array(
        [
            max(sample.seconds - form.chain_s, 0.1 * sample.seconds)
            for sample, form in zip(group, forms, strict=True)
        ]
    )
    features = np.stack([form.features for form in forms])
    prior = np.median([form.prior for form in forms], axis=0)
    power = forms[0].power
    prior_sd = np.array(PRIOR_SD[term][: len(prior)])
    terms = fit_terms(features, seconds, prior, prior_sd=prior_sd, power=power)
    far = spread_of_fit(
        features,
        seconds,
        terms,
        prior_sd=prior_sd,
        cold_sd=_cold_sd(group[0], base)[: len(prior)],
        usual_sd=base.spread.run.value,
        usual_samples=base.spread.noise_samples.value,
        power=power,
    )
    own: tuple[OwnRuns, ...] = ()
    if term == "step":
        own = own_runs(
            (
                s.timings.plan.nodes,
                s.timings.plan.servers,
                math.log(s.seconds / f.seconds(terms)),
            )
            for s, f in zip(group, forms, strict=True)
        )
    return GroupFit(
        own=own,
        terms=tuple(float(one) for one in terms),
        spread=LearntSpread(
            covariance=tuple(float(one) for one in far.covariance.ravel()),
            noise_sd=far.noise_sd,
            samples=len(group),
        ),
    )


def _cold_sd(sample: Sample, base: Base) -> Floats:
    spread = base.spread
    if sample.term == "step":
        if sample.timings.layout == "ps":
            return np.array((spread.compute.value, spread.server.value))
        return np.array((spread.compute.value, spread.transfer.value, spread.hop.value))
    one = {"stage": spread.stage, "start": spread.start, "checkpoint": spread.checkpoint}
    return np.full(2, one[sample.term].value)
