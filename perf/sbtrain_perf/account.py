"""Accounts for a run's prediction: each term against what was measured, and what it came from.

Looks at a plan, the run's own timings, the coefficients it was planned with and the timings
of the runs that those had learnt from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from sbtrain_perf.coefficients import (
    Base,
    Coefficient,
    Coefficients,
    LearntStart,
    LearntStep,
    nearest_start,
    nearest_step,
)
from sbtrain_perf.decision import TERM_NAMES
from sbtrain_perf.intervals import Interval, term_intervals
from sbtrain_perf.measured import TERMS, Sample, Term, measure_attempts
from sbtrain_perf.reasons import preemption_in_words
from sbtrain_perf.request import Plan
from sbtrain_perf.term_forms import Entry, learnt_entry
from sbtrain_perf.timing_log import AttemptTimings
from sbtrain_perf.wording import count, duration, ratio

MOST_NEAR = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A coefficient that a term was predicted from."""

    name: str
    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NearRun:
    """A run that was learnt from, the nearest in node count first."""

    run_id: str
    nodes: int
    measured_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TermAccount:
    """One staging, start-up, step or checkpoint; times: how often the plan has it.

    source: in words. runs, samples: learnt from, none where figures are the shipped ones.
    """

    term: Term
    times: int
    predicted_s: float
    interval: Interval | None
    measured_s: float | None
    source: str
    samples: int
    runs: tuple[str, ...]
    figures: tuple[Figure, ...]
    nearest: tuple[NearRun, ...]

    @property
    def miss_s(self) -> float:
        """What it adds to the total beyond the prediction."""
        if self.measured_s is None:
            return 0.0
        return self.times * (self.measured_s - self.predicted_s)

    @property
    def inside(self) -> bool | None:
        if self.measured_s is None or self.interval is None:
            return None
        return self.interval.holds(self.measured_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """coefficients: their label as the plan says; known: they are still at hand, else the
    sources are those of the ones in use now. biggest_miss, preemption: in words; no
    preemption where none is expected."""

    run_id: str
    coefficients: str
    known: bool
    total_s: float
    low_s: float | None
    high_s: float | None
    terms: tuple[TermAccount, ...]
    dominant: str
    biggest_miss: str
    preemption: str = ""


def account_for(
    plan: Plan,
    timings: Sequence[AttemptTimings],
    coefficients: Coefficients,
    *,
    learnt_from: Sequence[AttemptTimings] = (),
) -> Account:
    """timings: of the run's attempts, none where it has not started."""
    measured = measure_attempts(tuple(timings)).samples
    others = measure_attempts(tuple(learnt_from)).samples
    terms = tuple(_term(term, plan, measured, others, coefficients) for term in TERMS)
    prediction = plan.prediction
    return Account(
        run_id=plan.run_id,
        coefficients=plan.coefficients,
        known=coefficients.label == plan.coefficients,
        total_s=prediction.total_s,
        low_s=prediction.total_low_s,
        high_s=prediction.total_high_s,
        terms=terms,
        dominant=prediction.dominant,
        biggest_miss=_biggest_miss(terms),
        preemption=preemption_in_words(plan, coefficients),
    )


def runs_learnt_from(plan: Plan, coefficients: Coefficients) -> tuple[str, ...]:
    """Of all terms of a plan, each run once."""
    entries = [_entry(term, plan, coefficients) for term in TERMS]
    return tuple(dict.fromkeys(run for entry in entries if entry for run in entry.runs))


def _term(
    term: Term,
    plan: Plan,
    measured: Sequence[Sample],
    others: Sequence[Sample],
    coefficients: Coefficients,
) -> TermAccount:
    prediction = plan.prediction
    predicted = {
        "stage": prediction.stage_s,
        "start": prediction.start_s,
        "step": prediction.step_s,
        "checkpoint": prediction.checkpoint_s,
    }[term]
    times = {"step": prediction.steps, "checkpoint": prediction.checkpoints}.get(term, 1)
    seconds = [sample.seconds for sample in measured if sample.term == term]
    entry = _entry(term, plan, coefficients)
    return TermAccount(
        term=term,
        times=times,
        predicted_s=predicted,
        interval=term_intervals(prediction).get(term),
        measured_s=fmean(seconds) if seconds else None,
        source=_source(entry, plan),
        samples=entry.spread.samples if entry else 0,
        runs=entry.runs if entry else (),
        figures=() if entry else _figures(term, plan, coefficients.base),
        nearest=_nearest(term, entry, plan, others),
    )


def _entry(term: Term, plan: Plan, coefficients: Coefficients) -> Entry | None:
    """What was learnt and stood in for the shipped figures."""
    nothing = AttemptTimings(plan=plan, attempt=0, phases=(), ranks=())
    own = learnt_entry(
        Sample(term=term, seconds=1.0, size_bytes=0.0, timings=nothing), coefficients
    )
    if own is not None or term in ("stage", "checkpoint"):
        return own
    if term == "start":
        return nearest_start(
            coefficients.learnt,
            cluster=plan.cluster,
            workload=plan.workload,
            layout=plan.layout,
        )
    return nearest_step(
        coefficients.learnt,
        cluster=plan.cluster,
        workload=plan.workload,
        partition=plan.partition,
        layout=plan.layout,
        batch=plan.batch_per_worker,
        each=plan.workers_per_node,
    )


def _source(entry: Entry | None, plan: Plan) -> str:
    if entry is None:
        return "shipped"
    text = f"learnt from {count(len(entry.runs), 'run')}"
    if isinstance(entry, LearntStart) and entry.layout not in (None, plan.layout):
        return f"{text} of the other layout"
    if not isinstance(entry, LearntStep):
        return text
    nodes = ", ".join(str(one) for one in entry.nodes)
    text += f" on {nodes} nodes" if nodes != "1" else " on 1 node"
    other = []
    if entry.layout != plan.layout:
        other.append("of the other layout")
    if entry.partition != plan.partition:
        other.append(f"of {entry.partition}")
    if entry.batch_per_worker != plan.batch_per_worker:
        other.append(f"at batch {entry.batch_per_worker}")
    if entry.workers_per_node != plan.workers_per_node:
        other.append(f"with {count(entry.workers_per_node, 'worker')} a node")
    here = (one for one in entry.own if (one.nodes, one.servers) == (plan.nodes, plan.servers))
    own = None if other else next(here, None)
    if own is not None and len(entry.own) > 1:
        off = abs(own.ratio - 1.0)
        said = f"{off:.0%} {'slower' if own.ratio > 1.0 else 'faster'} than all of them say"
        other.append(f"({own.runs} of this configuration: {said})")
    return " ".join((text, *other))


def _figures(term: Term, plan: Plan, base: Base) -> tuple[Figure, ...]:
    groups: dict[str, dict[str, Coefficient]] = {
        "stage": {"stage.overhead_s": base.stage.overhead_s},
        "start": {"start.fixed_s": base.start.fixed_s, "start.node_s": base.start.node_s},
        "checkpoint": {
            "checkpoint.fixed_s": base.checkpoint.fixed_s,
            "checkpoint.byte_s": base.checkpoint.byte_s,
        },
        "step": {
            "compute.fixed_s": base.compute.fixed_s,
            "compute.activation_s": base.compute.activation_s,
            "compute.parameter_s": base.compute.parameter_s,
        },
    }
    figures = groups[term]
    if term == "step" and plan.layout == "ps":
        figures["server.tensor_s"] = base.server.tensor_s
        figures["server.parameter_byte_s"] = base.server.parameter_byte_s
    elif term == "step" and plan.nodes > 1:
        figures["allreduce.efficiency"] = base.allreduce.efficiency
        figures["allreduce.hop_s"] = base.allreduce.hop_s
    return tuple(
        Figure(name=name, value=one.value, unit=one.unit, source=one.source)
        for name, one in figures.items()
    )


def _nearest(
    term: Term, entry: Entry | None, plan: Plan, others: Sequence[Sample]
) -> tuple[NearRun, ...]:
    if entry is None:
        return ()
    by_run: dict[str, list[Sample]] = {}
    for sample in others:
        if sample.term == term and sample.timings.run_id in entry.runs:
            by_run.setdefault(sample.timings.run_id, []).append(sample)
    near = [
        NearRun(
            run_id=run_id,
            nodes=samples[0].timings.nodes,
            measured_s=fmean(sample.seconds for sample in samples),
        )
        for run_id, samples in by_run.items()
    ]
    near.sort(key=lambda one: (abs(math.log(one.nodes / plan.nodes)), one.run_id))
    return tuple(near[:MOST_NEAR])


def _biggest_miss(terms: Sequence[TermAccount]) -> str:
    timed = [one for one in terms if one.measured_s is not None]
    if not timed:
        return "nothing was measured yet"
    worst = max(timed, key=lambda one: abs(one.miss_s))
    way = "more" if worst.miss_s > 0 else "less"
    text = f"{TERM_NAMES[worst.term]}: {duration(abs(worst.miss_s))} {way} than predicted"
    if worst.predicted_s > 0 and worst.measured_s is not None:
        text += f", {ratio(worst.measured_s / worst.predicted_s)} x"
    if worst.inside is not None:
        text += ", inside its 90 %" if worst.inside else ", outside its 90 %"
    return text
