"""All trainers stop after the same step, whatever the order in which things happen."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from plans import example_plan
from sbtrain_jobs.layouts.ranks import counting_ranks
from sbtrain_jobs.supervisor.stop_agreement import (
    AllStopped,
    Ended,
    HeldAt,
    Joined,
    SavedAt,
    SendHold,
    SendStopAfter,
    StopAction,
    StopAsked,
    StopEvent,
    StopState,
    advance,
)
from sbtrain_perf.request import Role


def run(*events: StopEvent) -> tuple[StopState, list[StopAction]]:
    state, actions = StopState(), []
    for event in events:
        state, new = advance(state, event)
        actions += new
    return state, actions


def test_all_stop_after_the_furthest_step() -> None:
    _, actions = run(
        Joined(rank=0),
        Joined(rank=1),
        StopAsked(reason="SIGUSR1"),
        HeldAt(rank=1, step=7),
        HeldAt(rank=0, step=8),
        SavedAt(rank=0, step=8),
        Ended(rank=0),
        Ended(rank=1),
    )
    assert actions == [
        SendHold(rank=0, reason="SIGUSR1"),
        SendHold(rank=1, reason="SIGUSR1"),
        SendStopAfter(rank=0, step=8),
        SendStopAfter(rank=1, step=8),
        AllStopped(saved_step=8),
    ]


def test_a_notice_before_any_trainer_speaks_stops_at_once() -> None:
    assert run(StopAsked(reason="x"))[1] == [AllStopped(saved_step=None)]


def test_a_late_trainer_is_told_the_agreed_step() -> None:
    _, actions = run(
        Joined(rank=0),
        StopAsked(reason="x"),
        HeldAt(rank=0, step=5),
        Joined(rank=1),
        HeldAt(rank=1, step=4),
    )
    assert actions[1:] == [
        SendStopAfter(rank=0, step=5),
        SendHold(rank=1, reason="x"),
        SendStopAfter(rank=1, step=5),
    ]


def test_a_trainer_that_comes_after_all_have_stopped_is_stopped_too() -> None:
    _, actions = run(
        StopAsked(reason="x"), Joined(rank=1), HeldAt(rank=1, step=0), Ended(rank=1)
    )
    assert actions[1:] == [
        SendHold(rank=1, reason="x"),
        SendStopAfter(rank=1, step=0),
        AllStopped(saved_step=None),
    ]


def test_one_that_dies_before_it_holds_is_not_waited_for() -> None:
    _, actions = run(
        Joined(rank=0),
        Joined(rank=1),
        StopAsked(reason="x"),
        HeldAt(rank=0, step=5),
        Ended(rank=1),
    )
    assert actions[-1] == SendStopAfter(rank=0, step=5)


def test_a_periodic_save_before_the_notice_does_not_count() -> None:
    state, _ = run(Joined(rank=0), SavedAt(rank=0, step=3), StopAsked(reason="x"))
    assert state.saved_step is None


def test_a_save_that_is_heard_of_after_its_trainers_end_counts() -> None:
    state, _ = run(
        Joined(rank=0),
        StopAsked(reason="x"),
        HeldAt(rank=0, step=3),
        Ended(rank=0),
        SavedAt(rank=0, step=3),
    )
    assert state.saved_step == 3


def test_workers_count_in_allreduce_and_the_chief_alone_beside_servers() -> None:
    assert counting_ranks(example_plan()) == {0, 1}
    servers = example_plan(
        layout="ps",
        roles=(
            Role(name="ps", index=0, node=0),
            Role(name="chief", index=0, node=0),
            Role(name="worker", index=0, node=1),
        ),
    )
    assert counting_ranks(servers) == {1}


@dataclass
class Trainer:
    """A model of a trainer: runs steps until it is held, then up to the agreed one."""

    step: int = 0
    joined: bool = False
    ended: bool = False
    hold_seen: bool = False
    held: bool = False
    stop_after: int | None = None
    steps_run: list[int] = field(default_factory=list)


class Stopping(RuleBasedStateMachine):
    """Synchronous trainers under every order of joining, holding, dying and notices."""

    @initialize(ranks=st.integers(1, 5))
    def begin(self, ranks: int) -> None:
        self.state = StopState()
        self.trainers = {rank: Trainer() for rank in range(ranks)}
        self.noticed = False
        self.holds: list[int] = []
        self.stopped: list[AllStopped] = []

    def feed(self, event: StopEvent) -> None:
        self.state, actions = advance(self.state, event)
        for action in actions:
            assert self.noticed, "nothing is sent before a notice"
            match action:
                case SendHold(rank=rank):
                    self.holds.append(rank)
                    self.trainers[rank].hold_seen = True
                case SendStopAfter(rank=rank, step=step):
                    trainer = self.trainers[rank]
                    assert trainer.held
                    assert trainer.stop_after is None, "one StopAfter for each"
                    assert step >= trainer.step, "nobody is asked to undo a step"
                    trainer.stop_after = step
                case AllStopped():
                    self.stopped.append(action)

    @rule(rank=st.integers(0, 4))
    def join(self, rank: int) -> None:
        trainer = self.trainers.get(rank)
        if trainer is not None and not trainer.ended:
            trainer.joined = True
            self.feed(Joined(rank=rank))

    @precondition(lambda self: not self.noticed)
    @rule()
    def step_together(self) -> None:
        """A step of synchronous training runs on all or on none."""
        if all(t.joined and not t.ended for t in self.trainers.values()):
            for trainer in self.trainers.values():
                trainer.step += 1

    @rule()
    def notice(self) -> None:
        self.noticed = True
        self.feed(StopAsked(reason="x"))

    @rule(rank=st.integers(0, 4), twice=st.booleans())
    def hold(self, rank: int, twice: bool) -> None:
        trainer = self.trainers.get(rank)
        if trainer is not None and trainer.hold_seen and not trainer.ended:
            trainer.held = True
            self.feed(HeldAt(rank=rank, step=trainer.step))
            if twice:
                self.feed(HeldAt(rank=rank, step=trainer.step + 1))

    @rule(rank=st.integers(0, 4))
    def end(self, rank: int) -> None:
        trainer = self.trainers.get(rank)
        if trainer is not None:
            trainer.ended = True
            self.feed(Ended(rank=rank))

    @invariant()
    def consistent(self) -> None:
        if not hasattr(self, "state"):
            return
        live = [t for t in self.trainers.values() if t.joined and not t.ended]
        if self.noticed and not live:
            assert self.stopped, "an attempt where nobody counts is over"
        if self.noticed:
            assert all(t.hold_seen for t in live), "everyone there is asked to hold"
        if live and all(t.held for t in live):
            assert all(t.stop_after is not None for t in live), "no one waits for ever"
        agreed = {t.stop_after for t in self.trainers.values() if t.stop_after is not None}
        assert len(agreed) <= 1, "all stop after the same step"
        assert len(self.holds) == len(set(self.holds)), "one Hold for each"


TestStopping = Stopping.TestCase


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=50))
def test_the_agreed_step_is_the_maximum(steps: list[int]) -> None:
    joins = [Joined(rank=rank) for rank in range(len(steps))]
    holds = [HeldAt(rank=rank, step=step) for rank, step in enumerate(steps)]
    state, actions = run(*joins, StopAsked(reason="x"), *holds)
    assert state.agreed_step == max(steps)
    assert [a for a in actions if isinstance(a, SendStopAfter)] == [
        SendStopAfter(rank=rank, step=max(steps)) for rank in range(len(steps))
    ]
