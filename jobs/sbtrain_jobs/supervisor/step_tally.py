"""How far a run's loop of steps has come in one attempt, as the trainers say it."""

from __future__ import annotations

from sbtrain_jobs.errors import CheckpointError
from sbtrain_jobs.layouts.ranks import chief_rank, counting_ranks
from sbtrain_jobs.training.checkpoint import CheckpointStore
from sbtrain_jobs.wire.messages import (
    Held,
    Message,
    PhaseDone,
    Saved,
    StepsBegun,
    StepsDone,
    StepsOver,
)
from sbtrain_perf.request import Plan


class StepTally:
    """Bookkeeping only. Ranks that never join have no steps, and nothing is said of them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._chief = chief_rank(plan)
        self._counting = counting_ranks(plan)
        self._store = CheckpointStore(plan.checkpoint_dir)
        self._saved_before = self._newest()
        self._saved = False  # in this attempt
        self._saves = False  # the chief's loop has a function that saves
        self._step: dict[int, int] = {}  # the last one begun, of each rank that joined
        self._begun: set[int] = set()
        self._over: set[int] = set()
        self._kept = False

    def joined(self, rank: int) -> None:
        if rank in self._counting:
            self._step.setdefault(rank, 0)

    def heard(self, message: Message) -> None:
        """Note what a trainer says of its steps and saves; the rest is none of ours."""
        match message:
            case StepsBegun(rank=rank, start=start, saves=saves):
                self._reached(rank, start)
                self._begun.add(rank)
                self._saves = self._saves or (saves and rank == self._chief)
            case StepsDone(rank=rank, first=first, seconds=seconds):
                self._begun.add(rank)
                self._reached(rank, first + len(seconds) - 1)
            case Held(rank=rank, step=step):
                self._reached(rank, step)
            case StepsOver(rank=rank, step=step, kept=kept):
                self._reached(rank, step)
                self._over.add(rank)
                self._kept = self._kept or (kept and rank == self._chief)
            case PhaseDone(name="checkpoint") | Saved():
                self._saved = True
            case _:
                pass

    @property
    def complete(self) -> bool:
        """The chief has done the last planned step and has nothing left to save."""
        return self._kept and not self._short(self._chief)

    def left_behind(self, rank: int) -> str:
        """What to say of a worker that ended well while the chief goes on; or nothing."""
        goes_on = rank != self._chief and self._chief not in self._over
        return self._left(rank) if goes_on and self._short(rank) else ""

    def shortfall(self) -> str:
        """Which steps were planned and not done by ranks that all ended well; or nothing."""
        found = []
        if self._short(self._chief) and self._chief not in self._begun:
            found.append(f"no step of run.steps() was begun, {self._plan.steps} were planned")
        elif self._short(self._chief):
            found.append(f"ended after step {self._of_planned(self._chief)}")
        for rank in sorted(self._counting - {self._chief}):
            if self._short(rank) and self._step[rank] < self._step.get(self._chief, 0):
                found.append(self._left(rank))
        return "; ".join(found)

    def stuck(self) -> str:
        """What to say of an attempt that kept nothing new, though its script saves; else
        nothing. Looks into the folder of the checkpoints."""
        if not self._saves or self._saved or self.complete:
            return ""
        newest = self._newest()
        if newest is None or self._saved_before is None or newest > self._saved_before:
            return ""
        came_to = f"step {self._step.get(self._chief, 0)} of {self._plan.steps}"
        return (
            f"no progress in a whole attempt: it came to {came_to}, and nothing was saved "
            f"beyond step {newest}"
        )

    def _left(self, rank: int) -> str:
        role = self._plan.roles[rank]
        return f"{role.name} {role.index} left after step {self._of_planned(rank)}"

    def _of_planned(self, rank: int) -> str:
        told = "" if rank in self._over else " (the last it told of)"
        return f"{self._step.get(rank, 0)} of {self._plan.steps}{told}"

    def _short(self, rank: int) -> bool:
        return rank in self._step and self._step[rank] < self._plan.steps

    def _reached(self, rank: int, step: int) -> None:
        if rank in self._counting:
            self._step[rank] = max(step, self._step.get(rank, 0))

    def _newest(self) -> int | None:
        """The newest saved step, 0 without one; None where the folder cannot be read."""
        try:
            return max(self._store.steps(), default=0)
        except CheckpointError:
            return None
