"""How far a run's loop of steps has come in one attempt, as the trainers say it: who takes
part, what is done, what is saved, and in which words that is said."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from sbtrain_jobs.errors import CheckpointError
from sbtrain_jobs.layouts.ranks import chief_rank, counting_ranks
from sbtrain_jobs.training.checkpoint import CheckpointStore
from sbtrain_jobs.wire.messages import (
    Apart,
    Held,
    Message,
    PhaseDone,
    Saved,
    StepsBegun,
    StepsDone,
    StepsOver,
)
from sbtrain_perf.request import Plan
from sbtrain_perf.wording import count

BEGIN_WITHIN_S = 45.0  # for the others, once one rank runs steps
SETTLE_S = 2.0  # for steps that a rank reports after another has ended


class StepTally:
    """Bookkeeping only. Of a run in which nobody joins nothing is known, and nothing said."""

    def __init__(self, plan: Plan, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._plan = plan
        self._clock = clock
        self._chief = chief_rank(plan)
        self._counting = counting_ranks(plan)
        self._store = CheckpointStore(plan.checkpoint_dir)
        self._saved_before = self._newest_on_disk()
        self._told_saved: int | None = None  # in this attempt
        self._saves = False  # the chief's loop has a function that saves
        self._own_save = ""  # the newest file that a script saved by itself
        self._step: dict[int, int] = {}  # the last one begun, of each rank that joined
        self._begun: set[int] = set()
        self._over: set[int] = set()
        self._start: dict[int, int] = {}  # the step after which each rank began
        self._apart: list[str] = []  # why the ranks do not train together
        self._unsaid: list[str] = []
        self._kept = False
        self._first: tuple[int, float] | None = None  # rank that ran steps first, and when
        self._gone: dict[int, float] = {}  # ended well without joining, and when
        self._deserted: set[int] = set()  # of those: others ran steps after they had gone
        self._warned: set[int] = set()

    def joined(self, rank: int) -> None:
        if rank in self._counting:
            self._step.setdefault(rank, 0)
            self._gone.pop(rank, None)
            self._deserted.discard(rank)

    def joined_twice(self, rank: int) -> None:
        """A second process joined as this rank while the first was there."""
        self._part(f"more than one process joined as {self._names([rank])}")

    def ended_well(self, rank: int) -> None:
        if rank in self._counting and rank not in self._step:
            self._gone.setdefault(rank, self._clock())

    def has_joined(self, rank: int) -> bool:
        return rank in self._step

    def saved_by_script(self, path: str) -> None:
        """Its hooks saw it write a file of the framework's, without being asked by us."""
        self._own_save = path

    def heard(self, message: Message) -> None:
        """Note what a trainer says of its steps and saves; the rest is none of ours."""
        match message:
            case StepsBegun(rank=rank, start=start, saves=saves):
                self._reached(rank, start)
                self._started(rank, start)
                self._saves = self._saves or (saves and rank == self._chief)
                self._begins(rank, runs=start < self._plan.steps)
            case Apart(rank=rank, words=words):
                self._part(words)
            case StepsDone(rank=rank, first=first, seconds=seconds):
                self._begins(rank, runs=True)
                self._reached(rank, first + len(seconds) - 1)
            case Held(rank=rank, step=step):
                self._reached(rank, step)
            case StepsOver(rank=rank, step=step, kept=kept):
                self._reached(rank, step)
                self._over.add(rank)
                self._kept = self._kept or (kept and rank == self._chief)
            case PhaseDone(name="checkpoint", step=step) | Saved(step=step):
                self._told_saved = max(step, self._told_saved or 0)
            case _:
                pass

    # -- what is done ------------------------------------------------------------------

    @property
    def begun(self) -> bool:
        """Whether any rank has come to its loop of steps."""
        return bool(self._begun)

    @property
    def complete(self) -> bool:
        """All ranks of one world have done the last planned step, and its state is saved."""
        return self._kept and self._all_done and not self._apart

    @property
    def deserted(self) -> str:
        """Which ranks ended well without joining while others ran steps; or nothing."""
        if not self._deserted or self._first is None:
            return ""
        return (
            f"{self._names(self._deserted)} ended with exit status 0 without joining the run "
            f"in which {self._names([self._first[0]])} runs steps"
        )

    def warnings(self) -> list[str]:
        """What is to be said now, each once: why the ranks do not train together, and of
        which no step was heard though another began long ago."""
        unsaid, self._unsaid = self._unsaid, []
        if self._first is None or self._clock() < self._first[1] + BEGIN_WITHIN_S:
            return unsaid
        late = self._counting - self._begun - self._gone.keys() - self._warned
        self._warned |= late
        if late:
            unsaid.append(
                f"no step of {self._names(late)} was heard of within {BEGIN_WITHIN_S:g} s of "
                f"the first of {self._names([self._first[0]])}{self._of_absent(late)}"
            )
        return unsaid

    def left_behind(self, rank: int) -> str:
        """What to say of a worker that ended well while the chief goes on; or nothing."""
        goes_on = rank != self._chief and self._chief not in self._over
        return self._left(rank) if goes_on and self._short(rank) else ""

    def shortfall(self) -> str:
        """What ranks that all ended well have left undone of the plan; or nothing."""
        found = list(self._apart)
        if self._short(self._chief) and self._chief not in self._begun:
            found.append(f"no step of run.steps() was begun, {self._plan.steps} were planned")
        elif self._short(self._chief):
            found.append(f"ended after step {self._of_planned(self._chief)}")
        elif self._saves and not self._kept:
            found.append(f"the state after step {self._of_planned(self._chief)} is not saved")
        for rank in sorted(self._counting - {self._chief}):
            if self._short(rank) and self._step[rank] < self._step.get(self._chief, 0):
                found.append(self._left(rank))
        if self._begun and (absent := self._counting - self._step.keys()):
            found.append(f"nothing was heard of {self._names(absent)}")
        return "; ".join(found)

    def last_word(self) -> str:
        """What is known of a script whose trainers have all ended well."""
        if short := self.shortfall():
            all_told = self._over >= self._counting
            lead = "training is not" if all_told else "training is not known to be"
            return f"warning: {lead} complete: {short}"
        if self.complete:
            return "training is complete"
        if self._all_done:
            return (
                f"all {self._plan.steps} steps are done; run.steps() was given no save, so "
                "sbtrain keeps no state of them"
            )
        if self._plan.layout == "ps":
            return "the chief ended with exit status 0"
        trainers = len(self._plan.roles)
        who = "the trainer" if trainers == 1 else f"all {trainers} trainers"
        return f"{who} ended with exit status 0"

    # -- what is saved -----------------------------------------------------------------

    def saved_words(self, at_notice: int | None) -> str:
        """What is saved of this attempt; nothing where that is the script's own affair.

        at_notice: the step that was saved because of the notice.
        """
        newest = self._newest() if at_notice is None else at_notice
        if at_notice is not None or (newest or 0) > (self._saved_before or 0):
            return f"step {newest} saved"
        if self._own_save and Path(self._own_save).exists():
            return f"the script saved {self._own_save}"
        return "nothing new saved" if self._saves and newest is not None else ""

    def overdue_words(self, at_notice: int | None) -> str:
        """What to say where trainers have not ended within the grace."""
        newest = self._newest() if at_notice is None else at_notice
        if newest and (at_notice is not None or newest >= self._step.get(self._chief, 0)):
            return f"step {newest} is saved, but trainers have not ended within the grace"
        if not self._saves:
            return "trainers have not ended within the grace"
        if newest is None:
            return "not saved within the grace"
        counts = f"the checkpoint of step {newest} counts" if newest else "there is none before"
        return f"not saved within the grace; {counts}"

    def stuck(self) -> str:
        """What to say of an attempt that kept nothing new, though its script saves; else
        nothing. Looks into the folder of the checkpoints."""
        if not self._saves or self._told_saved is not None or self._own_save or self.complete:
            return ""
        newest = self._newest_on_disk()
        if newest is None or self._saved_before is None or newest > self._saved_before:
            return ""
        came_to = f"step {self._step.get(self._chief, 0)} of {self._plan.steps}"
        absent = self._counting - self._begun
        return (
            f"no progress in a whole attempt: it came to {came_to}, and nothing was saved "
            f"beyond step {newest}{self._of_absent(absent)}"
        )

    # -- details -----------------------------------------------------------------------

    @property
    def _all_done(self) -> bool:
        return all(r in self._over and not self._short(r) for r in self._counting)

    def _part(self, words: str) -> None:
        if words not in self._apart:
            self._apart.append(words)
            self._unsaid.append(words)

    def _started(self, rank: int, start: int) -> None:
        if rank not in self._counting or rank in self._start:
            return
        self._start[rank] = start
        other = next((r for r, at in self._start.items() if at != start), None)
        if other is not None:
            self._part(
                f"{self._names([rank])} began after step {start}, {self._names([other])} "
                f"after step {self._start[other]}"
            )

    def _begins(self, rank: int, *, runs: bool) -> None:
        if rank not in self._counting:
            return
        now_s, new = self._clock(), rank not in self._begun
        self._begun.add(rank)
        if not runs:
            return
        if self._first is None:
            self._first = (rank, now_s)
        self._deserted |= {
            gone for gone, at_s in self._gone.items() if new or now_s > at_s + SETTLE_S
        }

    def _left(self, rank: int) -> str:
        return f"{self._names([rank])} left after step {self._of_planned(rank)}"

    def _of_planned(self, rank: int) -> str:
        told = "" if rank in self._over else " (the last it told of)"
        return f"{self._step.get(rank, 0)} of {self._plan.steps}{told}"

    def _of_absent(self, ranks: Iterable[int]) -> str:
        absent = [rank for rank in ranks if rank not in self._step]
        return f"; not joined, as far as is known: {self._names(absent)}" if absent else ""

    def _names(self, ranks: Iterable[int]) -> str:
        """worker 1, worker 2 and 5 others."""
        names = [f"{r.name} {r.index}" for r in (self._plan.roles[n] for n in sorted(ranks))]
        if len(names) > 4:
            names[3:] = [count(len(names) - 3, "other")]
        head = ", ".join(names[:-1])
        return f"{head} and {names[-1]}" if head else names[-1]

    def _short(self, rank: int) -> bool:
        return rank in self._step and self._step[rank] < self._plan.steps

    def _reached(self, rank: int, step: int) -> None:
        if rank in self._counting:
            self._step[rank] = max(step, self._step.get(rank, 0))

    def _newest(self) -> int | None:
        """The newest saved step, as far as is known; None where nothing is."""
        known = (self._newest_on_disk(), self._told_saved)
        return max((step for step in known if step is not None), default=None)

    def _newest_on_disk(self) -> int | None:
        """The newest saved step, 0 without one; None where the folder cannot be read."""
        try:
            return max(self._store.steps(), default=0)
        except CheckpointError:
            return None
