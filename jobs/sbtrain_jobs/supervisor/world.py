"""One world of ranks that train together: how far they have come, and how they come to stop
after the same step."""

from __future__ import annotations

from collections.abc import Callable

from sbtrain_jobs.ending.first_failure import FirstFailure
from sbtrain_jobs.ending.world_watch import WorldWatch
from sbtrain_jobs.layouts.ranks import counting_ranks
from sbtrain_jobs.record.run_record import RunRecord
from sbtrain_jobs.supervisor import stop_agreement as stop
from sbtrain_jobs.supervisor.step_tally import StepTally
from sbtrain_jobs.wire.messages import (
    Formed,
    Forming,
    Held,
    Hold,
    Message,
    PhaseDone,
    Saved,
    ScriptOver,
    StepsDone,
    StopAfter,
)
from sbtrain_perf.request import Plan

DESERTED_HINT = (
    "every worker must join and run the steps; what one alone shall do belongs behind "
    "run.is_chief"
)


class TrainingWorld:
    """The ranks of a plan that count steps.

    Args:
        tell: sends a message to a rank; one that is not there gets none.
        say: writes a line of progress.
        stopped: called when all were asked to stop, and none counts steps any more.

    Attributes:
        spoke: a rank that counts steps has joined.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        tell: Callable[[int, Message], None],
        say: Callable[[str], None],
        stopped: Callable[[], None],
    ) -> None:
        self.tally = StepTally(plan)
        self.spoke = False
        self._counting = counting_ranks(plan)
        self._stop = stop.StopState()
        self._tell = tell
        self._say = say
        self._stopped = stopped

    @property
    def saved_step(self) -> int | None:
        """The step that was saved because all were asked to stop."""
        return self._stop.saved_step

    def joined(self, rank: int, *, twice: bool) -> None:
        """twice: another process is there as this rank."""
        if rank not in self._counting:
            return
        self.spoke = True
        self.tally.joined(rank)
        if twice:
            self.tally.joined_twice(rank)
        self._advance(stop.Joined(rank=rank))

    def heard(self, rank: int, message: Message) -> None:
        self.tally.heard(message)
        match message:
            case Held(step=step):
                self._advance(stop.HeldAt(rank=rank, step=step))
            case Saved(step=step):
                self._advance(stop.SavedAt(rank=rank, step=step))
            case _:
                pass

    def ask_to_stop(self, reason: str) -> None:
        self._advance(stop.StopAsked(reason=reason))

    def ended(self, rank: int) -> None:
        """Its process is gone, or can no longer be reached."""
        self._advance(stop.Ended(rank=rank))

    def _advance(self, event: stop.StopEvent) -> None:
        agreed_step = self._stop.agreed_step
        self._stop, actions = stop.advance(self._stop, event)
        if self._stop.agreed_step != agreed_step:
            who = "the others" if self._stop.ended & self._counting else "all"
            self._say(f"{who} stop after step {self._stop.agreed_step}")
        for action in actions:
            match action:
                case stop.SendHold(rank=rank, reason=reason):
                    self._tell(rank, Hold(reason=reason))
                case stop.SendStopAfter(rank=rank, step=step):
                    self._tell(rank, StopAfter(step=step))
                case stop.AllStopped():
                    self._stopped()


def hear_witness(
    rank: int,
    message: Message,
    watch: WorldWatch,
    failures: FirstFailure,
    tally: StepTally,
    record: RunRecord,
) -> None:
    """What a rank's hooks say. A script that joins tells of its steps and saves itself."""
    match message:
        case Forming() | Formed():
            watch.heard(message)
        case ScriptOver():
            failures.script_over(rank)
        case Saved(path=path):
            tally.saved_by_script(path)
        case StepsDone() if not tally.has_joined(rank):
            watch.stepped(rank)
            record.steps_done(message, by_hooks=True)
        case PhaseDone() if not tally.has_joined(rank):
            record.phase_done(message)
        case _:
            pass
