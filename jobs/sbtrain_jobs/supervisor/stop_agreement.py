"""How all trainers come to stop after the same step: a pure state machine.

    running --notice--> holding --all held--> stopping --all ended--> stopped
               \\______________ nobody counts steps ______________________/

Only trainers that count steps and have said Hello take part. One that says Hello after the
notice is asked to hold too, even when all others have stopped; one that ends is no longer
waited for. Nothing here knows of
sockets, clocks or Slurm: `advance` maps a state and an event to the next state and what is
to be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A trainer that counts steps has said Hello."""

    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAsked:
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldAt:
    """The trainer starts no step later than this one."""

    rank: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedAt:
    rank: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The trainer's process is gone, or it can no longer be reached."""

    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendHold:
    rank: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendStopAfter:
    rank: int
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AllStopped:
    """Nobody counts steps any more. saved_step: what was saved because of the notice."""

    saved_step: int | None


Phase = Literal["running", "holding", "stopping", "stopped"]
StopEvent = Joined | StopAsked | HeldAt | SavedAt | Ended
StopAction = SendHold | SendStopAfter | AllStopped


@dataclass(frozen=True, slots=True, kw_only=True)
class StopState:
    """counting: ranks that take part and have not ended; agreed_step: the last step to run."""

    phase: Phase = "running"
    reason: str = ""
    counting: frozenset[int] = frozenset()
    ended: frozenset[int] = frozenset()
    held: Mapping[int, int] = field(default_factory=dict)
    agreed_step: int | None = None
    saved_step: int | None = None


def advance(state: StopState, event: StopEvent) -> tuple[StopState, tuple[StopAction, ...]]:
    """The next state, and what to do now, in order. An event told twice changes nothing."""
    match event:
        case Joined(rank=rank):
            return _joined(state, rank)
        case StopAsked(reason=reason):
            return _asked(state, reason)
        case HeldAt(rank=rank, step=step):
            return _held(state, rank, step)
        case SavedAt(step=step):
            if state.phase == "running":  # a periodic save
                return state, ()
            return replace(state, saved_step=max(step, state.saved_step or 0)), ()
        case Ended(rank=rank):
            return _ended(state, rank)


def _joined(state: StopState, rank: int) -> tuple[StopState, tuple[StopAction, ...]]:
    if rank in state.counting or rank in state.ended:
        return state, ()
    state = replace(state, counting=state.counting | {rank})
    if state.phase == "running":
        return state, ()
    if state.phase == "stopped":
        phase: Phase = "holding" if state.agreed_step is None else "stopping"
        state = replace(state, phase=phase)
    return state, (SendHold(rank=rank, reason=state.reason),)


def _asked(state: StopState, reason: str) -> tuple[StopState, tuple[StopAction, ...]]:
    if state.phase != "running":
        return state, ()
    state = replace(state, phase="holding", reason=reason)
    if not state.counting:
        return _stopped(state)
    return state, tuple(SendHold(rank=r, reason=reason) for r in sorted(state.counting))


def _held(state: StopState, rank: int, step: int) -> tuple[StopState, tuple[StopAction, ...]]:
    if rank not in state.counting or rank in state.held or state.phase == "running":
        return state, ()
    state = replace(state, held={**state.held, rank: step})
    if state.agreed_step is not None:  # it joined after the others had agreed
        return state, (SendStopAfter(rank=rank, step=max(state.agreed_step, step)),)
    return _agree(state)


def _ended(state: StopState, rank: int) -> tuple[StopState, tuple[StopAction, ...]]:
    if rank in state.ended:
        return state, ()
    state = replace(state, counting=state.counting - {rank}, ended=state.ended | {rank})
    if state.phase in ("running", "stopped"):
        return state, ()
    if not state.counting:
        return _stopped(state)
    return (state, ()) if state.agreed_step is not None else _agree(state)


def _agree(state: StopState) -> tuple[StopState, tuple[StopAction, ...]]:
    if not all(rank in state.held for rank in state.counting):
        return state, ()
    # The steps of those that ended count too: what they ran, the others must run.
    agreed = max(state.held.values())
    state = replace(state, phase="stopping", agreed_step=agreed)
    return state, _stop_after(state.counting, agreed)


def _stop_after(ranks: Iterable[int], step: int) -> tuple[StopAction, ...]:
    return tuple(SendStopAfter(rank=rank, step=step) for rank in sorted(ranks))


def _stopped(state: StopState) -> tuple[StopState, tuple[StopAction, ...]]:
    state = replace(state, phase="stopped")
    return state, (AllStopped(saved_step=state.saved_step),)
