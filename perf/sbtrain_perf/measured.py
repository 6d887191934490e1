"""What an attempt measured, term by term, as refit uses it; and what of it is no measurement.

A step's time is the median of the means of up to 20 stretches of steps, the first steps left
out: as robust as a median, and as near to the mean as the total time needs. What the first
steps took beyond that (tracing, caches) counts as start-up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from sbtrain_perf.timing_log import AttemptTimings, Phase, RankSteps

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Term = Literal["stage", "start", "step", "checkpoint"]
TERMS: tuple[Term, ...] = ("stage", "start", "step", "checkpoint")

FEWEST_STEPS = 5  # after the first ones
_STRETCHES = 20
_ATTEMPT_MOST_S = 1e8  # no attempt lasts three years: such an end counts from elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measured term of one attempt. size_bytes: of the data set, or the checkpoint."""

    term: Term
    seconds: float
    size_bytes: float
    timings: AttemptTimings


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A measurement that refit does not learn from, and why."""

    run_id: str
    attempt: int
    term: Term | Literal["lifetime"]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    samples: tuple[Sample, ...]
    refused: tuple[Refusal, ...]


def measure_attempts(attempts: tuple[AttemptTimings, ...]) -> Measured:
    """All samples of all attempts, in order; what cannot be a measurement is refused."""
    samples: list[Sample] = []
    refused: list[Refusal] = []
    for timings in attempts:
        for term, measure in _MEASURES.items():
            try:
                samples += measure(timings)
            except _NotMeasuredError as error:
                refused.append(
                    Refusal(
                        run_id=timings.run_id,
                        attempt=timings.attempt,
                        term=term,
                        reason=str(error),
                    )
                )
    return Measured(samples=tuple(samples), refused=tuple(refused))


class _NotMeasuredError(Exception):
    """A number that no clock or file can have given."""


def _stage(timings: AttemptTimings) -> Iterator[Sample]:
    for phase in timings.named("stage"):
        size = _number(phase, "size_bytes")
        if size > 0:
            yield Sample(
                term="stage", seconds=_seconds(phase), size_bytes=size, timings=timings
            )


def _checkpoint(timings: AttemptTimings) -> Iterator[Sample]:
    for phase in timings.named("checkpoint"):
        yield Sample(
            term="checkpoint",
            seconds=_seconds(phase),
            size_bytes=_number(phase, "size_bytes"),
            timings=timings,
        )


def _start(timings: AttemptTimings) -> Iterator[Sample]:
    """From the attempt's start to the first step, staging and restoring left out."""
    phases = timings.named("start")
    if not phases:
        return
    longest = max(_seconds(phase) for phase in phases)
    others = sum(_seconds(p) for name in ("stage", "restore") for p in timings.named(name))
    ends = [p.at_s + p.seconds for p in phases]
    passed = max((end for end in ends if end < _ATTEMPT_MOST_S), default=0.0) - others
    yield Sample(
        term="start",
        seconds=max(longest, passed) + _first_steps_excess_s(timings),
        size_bytes=0.0,
        timings=timings,
    )


def _step(timings: AttemptTimings) -> Iterator[Sample]:
    seconds = step_seconds(timings)
    if seconds is not None:
        yield Sample(term="step", seconds=seconds, size_bytes=0.0, timings=timings)


_MEASURES: dict[Term, Callable[[AttemptTimings], Iterator[Sample]]] = {
    "stage": _stage,
    "start": _start,
    "step": _step,
    "checkpoint": _checkpoint,
}


def described_count(timings: AttemptTimings, name: str) -> int | None:
    """A number that the run gave of its network (`parameters`, `tensors`), if it is one."""
    value = timings.described(name)
    return int(value) if value is not None and 1.0 <= value < 1e15 else None


def step_seconds(timings: AttemptTimings) -> float | None:
    """From one step to the next; None where too few were timed.

    All-reduce: the ranks step together, the median rank counts. Parameter servers: the
    chief's steps are the updates; where it timed none, the workers' rates add up.
    """
    ranks = _step_ranks(timings)
    typical = [_typical(rank) for rank in ranks]
    known = [seconds for seconds in typical if seconds is not None]
    if not known:
        return None
    if timings.layout == "ps" and len(known) > 1:
        return 1.0 / sum(1.0 / seconds for seconds in known)
    return float(np.median(known))


def _step_ranks(timings: AttemptTimings) -> list[RankSteps]:
    roles = timings.plan.roles
    for rank in timings.ranks:
        if not (np.all(np.isfinite(rank.seconds)) and np.all(rank.seconds > 0.0)):
            raise _NotMeasuredError("a step took no finite time above 0")
    chiefs = [
        rank
        for rank in timings.ranks
        if 0 <= rank.rank < len(roles) and roles[rank.rank].name == "chief"
    ]
    return chiefs or list(timings.ranks)


def _first_steps(count: int) -> int:
    """How many steps are left out: a tenth, between 1 and 10."""
    return min(10, max(1, count // 10))


def _typical(rank: RankSteps) -> float | None:
    steady = rank.seconds[_first_steps(len(rank.seconds)) :]
    if len(steady) < FEWEST_STEPS:
        return None
    stretches = np.array_split(steady, min(_STRETCHES, len(steady) // FEWEST_STEPS))
    return float(np.median([stretch.mean() for stretch in stretches]))


def _first_steps_excess_s(timings: AttemptTimings) -> float:
    """What the first steps took beyond the typical ones; of the slowest rank."""
    excess = [0.0]
    for rank in _step_ranks(timings):
        typical = _typical(rank)
        if typical is not None:
            first = rank.seconds[: _first_steps(len(rank.seconds))]
            excess.append(float(np.sum(first - typical)))
    return max(excess)


def _seconds(phase: Phase) -> float:
    if not (math.isfinite(phase.seconds) and phase.seconds > 0.0):
        raise _NotMeasuredError(f"{phase.name} took {phase.seconds:g} s")
    return phase.seconds


def _number(phase: Phase, name: str) -> float:
    value = phase.numbers.get(name, 0.0)
    if not (math.isfinite(value) and value >= 0.0):
        raise _NotMeasuredError(f"{name} of {phase.name} is {value:g}")
    return value
