"""Refit: from what runs measured to the coefficients of the next plans.

Pure and deterministic. Per cluster, workload and layout: start-up; per cluster and partition:
staging; per workload, layout, partition and batch: the parameters of the step's closed
form; per cluster: checkpoints; per cluster and partition: lifetimes. Each is shrunk to what
the models say without having learnt (the plan's basis and the base coefficients). A
measurement that cannot be one is refused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sbtrain_perf.coefficients import (
    Coefficients,
    Learnt,
    LearntCheckpoint,
    LearntModel,
    LearntStage,
    LearntStart,
    LearntStep,
    step_key,
    with_learnt,
)
from sbtrain_perf.drift import find_drift
from sbtrain_perf.gate import GateResult, gated
from sbtrain_perf.group_fits import GroupFit, Key, T, fit_group, grouped, key_of
from sbtrain_perf.lifetimes import Lived, learn_lifetimes
from sbtrain_perf.measured import (
    TERMS,
    Refusal,
    Sample,
    Term,
    described_count,
    measure_attempts,
)
from sbtrain_perf.shards import told_shares
from sbtrain_perf.shrinkage import spread
from sbtrain_perf.term_forms import form_of, relative_error
from sbtrain_perf.timing_log import AttemptTimings

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
    """coefficients: the next generation; the base's own where nothing was learnt. verdicts:
    of all that has new runs; what is not promoted stays as it was."""

    coefficients: Coefficients
    errors: tuple[TermError, ...]
    refused: tuple[Refusal, ...]
    verdicts: tuple[GateResult, ...] = ()

    @property
    def held_back(self) -> tuple[GateResult, ...]:
        return tuple(one for one in self.verdicts if not one.promoted)


def refit(
    timings: Sequence[AttemptTimings], base: Coefficients, *, lived: Sequence[Lived] = ()
) -> RefitResult:
    """Learn from all attempts; what base has learnt of other keys is kept, and of those
    whose error on left-out runs would rise.

    lived: how long attempts held their allocations, in the order of submission.
    Errors before and after are measured on the very runs that were learnt from.
    """
    timings = sorted(timings, key=lambda t: (t.plan.submitted_at, t.run_id, t.attempt))
    measured = measure_attempts(tuple(timings))
    refused = list(measured.refused)
    samples: list[Sample] = []
    for group in grouped(measured.samples, key_of).values():
        good, bad = _without_poison(group, base)
        samples += good
        refused += bad
    laws = learn_lifetimes(lived, base)
    refused += laws.refused
    if not samples and not lived:
        return RefitResult(coefficients=base, errors=(), refused=tuple(refused))
    groups = grouped(samples, key_of)
    judged = [gated(key, groups[key], base) for key in sorted(groups, key=repr)]
    verdicts = (*(one for one in judged if one is not None), *laws.verdicts)
    held = {one.key for one in verdicts if not one.promoted}
    promoted = [s for s in samples if key_of(s) not in held]
    new = dataclasses.replace(_learn(promoted, timings, base), lifetimes=laws.entries)
    learnt = _merged(base.learnt, new)
    drift = find_drift(measured.samples) if measured.samples else base.drift
    fitted = base
    if learnt != base.learnt or drift != base.drift:
        lasting = (run for law in laws.entries for run in law.runs)
        runs = (*base.sources, *(s.timings.run_id for s in promoted), *lasting)
        fitted = with_learnt(base, learnt, tuple(sorted(set(runs))), drift)
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
    return RefitResult(
        coefficients=fitted, errors=tuple(errors), refused=tuple(refused), verdicts=verdicts
    )


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
    groups = grouped(samples, key_of)
    ordered = [groups[key] for key in sorted(groups, key=repr)]
    fits = [(group, fit_group(group, base.base)) for group in ordered]
    steps = [f for f in fits if f[0][0].term == "step"]
    return Learnt(
        steps=tuple(_learnt_step(group, fit) for group, fit in steps),
        starts=tuple(
            LearntStart(
                cluster=group[0].timings.cluster,
                workload=group[0].timings.workload,
                layout=group[0].timings.layout,
                fixed_s=fit.terms[0],
                node_s=fit.terms[1],
                runs=_runs(group),
                spread=fit.spread,
            )
            for group, fit in fits
            if group[0].term == "start"
        ),
        stages=tuple(
            LearntStage(
                cluster=group[0].timings.cluster,
                partition=group[0].timings.partition,
                overhead_s=fit.terms[0],
                rate_bytes_s=1.0 / max(fit.terms[1], _LEAST_BYTE_S),
                runs=_runs(group),
                spread=fit.spread,
            )
            for group, fit in fits
            if group[0].term == "stage"
        ),
        checkpoints=tuple(
            LearntCheckpoint(
                cluster=group[0].timings.cluster,
                fixed_s=fit.terms[0],
                byte_s=fit.terms[1],
                runs=_runs(group),
                spread=fit.spread,
            )
            for group, fit in fits
            if group[0].term == "checkpoint"
        ),
        models=_models(samples, timings, base.learnt.models),
    )


def _learnt_step(group: Sequence[Sample], fit: GroupFit) -> LearntStep:
    plan = group[0].timings.plan
    served = plan.layout == "ps"
    return LearntStep(
        cluster=plan.cluster,
        workload=plan.workload,
        partition=plan.partition,
        layout=plan.layout,
        batch_per_worker=plan.batch_per_worker,
        compute_s=fit.terms[0],
        transfer_s=0.0 if served else fit.terms[1],
        hop_s=0.0 if served else fit.terms[2],
        server_s=fit.terms[1] if served else 0.0,
        nodes=tuple(sorted({sample.timings.nodes for sample in group})),
        runs=_runs(group),
        spread=fit.spread,
        own=fit.own,
        workers_per_node=plan.workers_per_node,
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
                fullest_shards=next(
                    filter(None, map(told_shares, reversed(attempts))), before.fullest_shards
                ),
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
        steps=_replaced(old.steps, new.steps, step_key),
        starts=_starts(old.starts, new.starts),
        stages=_replaced(old.stages, new.stages, lambda s: (s.cluster, s.partition)),
        checkpoints=_replaced(old.checkpoints, new.checkpoints, lambda c: (c.cluster,)),
        models=_replaced(old.models, new.models, lambda m: (m.workload,)),
        lifetimes=_replaced(
            old.lifetimes, new.lifetimes, lambda one: (one.cluster, one.partition)
        ),
    )


def _starts(old: Sequence[LearntStart], new: Sequence[LearntStart]) -> tuple[LearntStart, ...]:
    """What a file of before says of both layouts goes once one of them is learnt."""
    learnt = {(start.cluster, start.workload) for start in new}
    kept = [s for s in old if s.layout is not None or (s.cluster, s.workload) not in learnt]
    return _replaced(kept, new, lambda s: (s.cluster, s.workload, s.layout or ""))


def _replaced(old: Sequence[T], new: Sequence[T], key: Callable[[T], Key]) -> tuple[T, ...]:
    together = {key(entry): entry for entry in (*old, *new)}
    return tuple(together[k] for k in sorted(together, key=repr))
