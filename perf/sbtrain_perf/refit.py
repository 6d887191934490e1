"""Refit: from what runs measured to the coefficients of the next plans.

Pure and deterministic. Per cluster and workload: start-up; per cluster and partition:
staging; per workload, layout, partition and batch: the parameters of the step's closed
form; per cluster: checkpoints. Each is shrunk to what the models say without having learnt
(the plan's basis and the base coefficients). A measurement that cannot be one is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from sbtrain_perf.coefficients import (
    Coefficients,
    Learnt,
    LearntCheckpoint,
    LearntModel,
    LearntStage,
    LearntStart,
    LearntStep,
    with_learnt,
)
from sbtrain_perf.measured import (
    TERMS,
    Refusal,
    Sample,
    Term,
    described_count,
    measure_attempts,
)
from sbtrain_perf.shrinkage import fit_terms, spread
from sbtrain_perf.term_forms import form_of, relative_error
from sbtrain_perf.timing_log import AttemptTimings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

# How far off the unlearnt models may be: spread of the logarithm of each term, in the order
# of term_forms. Our choice: a cold step is known to a factor of 4, communication to 20.
PRIOR_SD: dict[Term, tuple[float, ...]] = {
    "stage": (0.7, 0.7),
    "start": (0.5, 0.5),
    "step": (1.5, 3.0, 3.0),
    "checkpoint": (0.7, 0.7),
}
POISON_SPREADS = 10.0  # as many robust spreads from the others' median are not believed
LEAST_SPREAD = 0.1  # of a logarithm: what is never counted as poison
FEWEST_TO_COMPARE = 4
_NEVER = math.log(1e4)  # as far from the models nothing is believed, compared or not
_LEAST_BYTE_S = 1e-15


@dataclass(frozen=True, slots=True, kw_only=True)
class TermError:
    """Mean of |predicted - measured| / measured, with the old and the new coefficients."""

    term: Term
    samples: int
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RefitResult:
    """coefficients: the next generation; the base's own where nothing was learnt."""

    coefficients: Coefficients
    errors: tuple[TermError, ...]
    refused: tuple[Refusal, ...]


def refit(timings: Sequence[AttemptTimings], base: Coefficients) -> RefitResult:
    """Learn from all attempts; what base has learnt of other keys is kept.

    Errors before and after are measured on the very runs that were learnt from.
    """
    timings = sorted(timings, key=lambda t: (t.plan.submitted_at, t.run_id, t.attempt))
    measured = measure_attempts(tuple(timings))
    refused = list(measured.refused)
    samples: list[Sample] = []
    for group in _grouped(measured.samples, _key).values():
        good, bad = _without_poison(group, base)
        samples += good
        refused += bad
    if not samples:
        return RefitResult(coefficients=base, errors=(), refused=tuple(refused))
    runs = tuple(sorted({*base.sources, *(s.timings.run_id for s in samples)}))
    learnt = _merged(base.learnt, _learn(samples, timings, base))
    fitted = with_learnt(base, learnt, runs)
    errors = []
    for term in TERMS:
        of_term = [s for s in samples if s.term == term]
        if of_term:
            before = [relative_error(s, base) for s in of_term]
            after = [relative_error(s, fitted) for s in of_term]
            errors.append(
                TermError(
                    term=term,
                    samples=len(of_term),
                    before=float(np.mean(before)),
                    after=float(np.mean(after)),
                )
            )
    return RefitResult(coefficients=fitted, errors=tuple(errors), refused=tuple(refused))


Key = tuple[str | int, ...]
T = TypeVar("T")


def _key(sample: Sample) -> Key:
    """What one fit is made for."""
    timings = sample.timings
    if sample.term == "stage":
        return "stage", timings.cluster, timings.partition
    if sample.term == "start":
        return "start", timings.cluster, timings.workload
    if sample.term == "checkpoint":
        return "checkpoint", timings.cluster
    batch = timings.plan.batch_per_worker
    return "step", timings.cluster, timings.workload, timings.partition, timings.layout, batch


def _grouped(items: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    groups: dict[Key, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def _without_poison(
    group: list[Sample], base: Coefficients
) -> tuple[list[Sample], list[Refusal]]:
    """Samples of one key that agree, and refusals of those that are far from the others.

    Compared is the logarithm of measured over what the unlearnt models say, so that node
    counts and sizes may differ.
    """
    forms = [form_of(sample, base.base) for sample in group]
    logs = np.log(
        [s.seconds / form.seconds(form.prior) for s, form in zip(group, forms, strict=True)]
    )
    centre, far = 0.0, _NEVER
    if len(group) >= FEWEST_TO_COMPARE:
        centre = float(np.median(logs))
        far = min(POISON_SPREADS * max(spread(logs), LEAST_SPREAD), _NEVER)
    good, bad = [], []
    for sample, log in zip(group, logs.tolist(), strict=True):
        if abs(log - centre) <= far:
            good.append(sample)
        else:
            usual = math.exp(centre - log) * sample.seconds
            bad.append(
                Refusal(
                    run_id=sample.timings.run_id,
                    attempt=sample.timings.attempt,
                    term=sample.term,
                    reason=f"{sample.seconds:.3g} s where about {usual:.3g} s are usual",
                )
            )
    return good, bad


def _learn(
    samples: Sequence[Sample], timings: Sequence[AttemptTimings], base: Coefficients
) -> Learnt:
    groups = _grouped(samples, _key)
    ordered = [groups[key] for key in sorted(groups, key=repr)]
    fits = [(group, _fit(group, base)) for group in ordered]
    steps = [f for f in fits if f[0][0].term == "step"]
    return Learnt(
        steps=tuple(_learnt_step(group, terms) for group, terms in steps),
        starts=tuple(
            LearntStart(
                cluster=group[0].timings.cluster,
                workload=group[0].timings.workload,
                fixed_s=terms[0],
                node_s=terms[1],
                runs=_runs(group),
            )
            for group, terms in fits
            if group[0].term == "start"
        ),
        stages=tuple(
            LearntStage(
                cluster=group[0].timings.cluster,
                partition=group[0].timings.partition,
                overhead_s=terms[0],
                rate_bytes_s=1.0 / max(terms[1], _LEAST_BYTE_S),
                runs=_runs(group),
            )
            for group, terms in fits
            if group[0].term == "stage"
        ),
        checkpoints=tuple(
            LearntCheckpoint(
                cluster=group[0].timings.cluster,
                fixed_s=terms[0],
                byte_s=terms[1],
                runs=_runs(group),
            )
            for group, terms in fits
            if group[0].term == "checkpoint"
        ),
        models=_models(samples, timings, base.learnt.models),
    )


def _fit(group: Sequence[Sample], base: Coefficients) -> list[float]:
    """The terms of one key. Samples whose chain takes longer than they did count as short."""
    forms = [form_of(sample, base.base) for sample in group]
    seconds = [
        max(sample.seconds - form.chain_s, 0.1 * sample.seconds)
        for sample, form in zip(group, forms, strict=True)
    ]
    prior = np.median([form.prior for form in forms], axis=0)
    terms = fit_terms(
        np.stack([form.features for form in forms]),
        np.array(seconds),
        prior,
        prior_sd=np.array(PRIOR_SD[group[0].term][: len(prior)]),
        power=forms[0].power,
    )
    return [float(term) for term in terms]


def _learnt_step(group: Sequence[Sample], terms: list[float]) -> LearntStep:
    plan = group[0].timings.plan
    served = plan.layout == "ps"
    return LearntStep(
        cluster=plan.cluster,
        workload=plan.workload,
        partition=plan.partition,
        layout=plan.layout,
        batch_per_worker=plan.batch_per_worker,
        compute_s=terms[0],
        transfer_s=0.0 if served else terms[1],
        hop_s=0.0 if served else terms[2],
        server_s=terms[1] if served else 0.0,
        nodes=tuple(sorted({sample.timings.nodes for sample in group})),
        runs=_runs(group),
    )


def _models(
    samples: Sequence[Sample], timings: Sequence[AttemptTimings], old: Sequence[LearntModel]
) -> tuple[LearntModel, ...]:
    """What each workload's runs last said of their network, and how large it is saved."""
    known = {model.workload: model for model in old}
    models = []
    for workload in sorted({sample.timings.workload for sample in samples}):
        before = known.get(workload, LearntModel(workload=workload))
        attempts = [t for t in timings if t.workload == workload]
        sizes = [
            sample.size_bytes
            for sample in samples
            if sample.term == "checkpoint" and sample.timings.workload == workload
        ]
        models.append(
            LearntModel(
                workload=workload,
                parameters=_last(attempts, "parameters") or before.parameters,
                tensors=_last(attempts, "tensors") or before.tensors,
                checkpoint_bytes=int(np.median(sizes)) if sizes else before.checkpoint_bytes,
            )
        )
    return tuple(models)


def _last(attempts: Sequence[AttemptTimings], name: str) -> int | None:
    said = [described_count(attempt, name) for attempt in attempts]
    return next((value for value in reversed(said) if value is not None), None)


def _runs(group: Sequence[Sample]) -> tuple[str, ...]:
    return tuple(sorted({sample.timings.run_id for sample in group}))


def _merged(old: Learnt, new: Learnt) -> Learnt:
    """New entries in place of old ones of the same key; other old ones stay."""
    return Learnt(
        steps=_replaced(
            old.steps,
            new.steps,
            lambda s: (s.cluster, s.workload, s.partition, s.layout, s.batch_per_worker),
        ),
        starts=_replaced(old.starts, new.starts, lambda s: (s.cluster, s.workload)),
        stages=_replaced(old.stages, new.stages, lambda s: (s.cluster, s.partition)),
        checkpoints=_replaced(old.checkpoints, new.checkpoints, lambda c: (c.cluster,)),
        models=_replaced(old.models, new.models, lambda m: (m.workload,)),
    )


def _replaced(old: Sequence[T], new: Sequence[T], key: Callable[[T], Key]) -> tuple[T, ...]:
    together = {key(entry): entry for entry in (*old, *new)}
    return tuple(together[k] for k in sorted(together, key=repr))
