"""What a refit may promote: only fits whose error on runs left out does not rise.

Every run of a group is predicted once by a fit of the others, and set against what the
current coefficients say of it: those of its own runs' fit without it where they learnt from
it, else as they are. Errors are |log(predicted / measured)|.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sbtrain_perf.coefficients import Coefficients
from sbtrain_perf.group_fits import Key, fit_group
from sbtrain_perf.measured import Sample
from sbtrain_perf.term_forms import form_of, learnt_entry, predicted_s

MOST_FOLDS = 10
CHANCE = 2.0  # standard errors of a mean over runs: a smaller rise says nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """Of one group. before, after: mean error on left-out runs, of the current and of the new
    coefficients. tolerance: a rise that runs of one plan make by chance."""

    key: Key
    runs: int
    before: float
    after: float
    tolerance: float

    @property
    def promoted(self) -> bool:
        return self.after <= self.before + self.tolerance


def gated(key: Key, group: Sequence[Sample], base: Coefficients) -> GateResult | None:
    """None where the current coefficients have learnt from the same runs."""
    runs = sorted({sample.timings.run_id for sample in group})
    entry = learnt_entry(group[0], base)
    known = frozenset(entry.runs) if entry else frozenset()
    if known == frozenset(runs):
        return None
    before, after = 0.0, 0.0
    for first in range(min(len(runs), MOST_FOLDS)):
        fold = frozenset(runs[first::MOST_FOLDS])
        left_out = [s for s in group if s.timings.run_id in fold]
        rest = [s for s in group if s.timings.run_id not in fold]
        after += _errors(left_out, rest, base)
        old = [s for s in left_out if s.timings.run_id in known]
        before += _errors(old, [s for s in rest if s.timings.run_id in known], base)
        before += sum(
            _off(predicted_s(s, base), s) for s in left_out if s.timings.run_id not in known
        )
    return GateResult(
        key=key,
        runs=len(runs),
        before=before / len(group),
        after=after / len(group),
        tolerance=CHANCE * base.base.spread.run.value / math.sqrt(len(runs)),
    )


def _errors(left_out: Sequence[Sample], rest: Sequence[Sample], base: Coefficients) -> float:
    """Summed; without any other run, of what the models say unlearnt."""
    if not left_out:
        return 0.0
    forms = [form_of(sample, base.base) for sample in left_out]
    if not rest:
        return sum(
            _off(form.seconds(form.prior), s) for form, s in zip(forms, left_out, strict=True)
        )
    fit = fit_group(rest, base.base)
    return sum(_off(fit.seconds(s, form), s) for form, s in zip(forms, left_out, strict=True))


def _off(predicted: float, sample: Sample) -> float:
    return abs(math.log(max(predicted, 1e-300) / sample.seconds))
