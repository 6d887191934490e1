"""The times of steps that hooks see, and what is trained in them: told in batches, like those
of a script that joins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from sbtrain_jobs.hooks.witness import Witness, witness
from sbtrain_jobs.training.step_clock import StepClock, process_age_s
from sbtrain_jobs.wire.messages import PhaseDone, StepsDone

OTHERS_IN_A_ROW = 50  # steps of others after which the first one is no more in use


class Trained(NamedTuple):
    """None or nothing where nobody knows. variables: the elements of each, in the order of
    creation."""

    parameters: int | None = None
    tensors: int | None = None
    variables: tuple[int, ...] = ()


Describe = Callable[[Any], Trained]


def trained_variables(variables: Iterable[Any]) -> Trained:
    """Of things with a shape that is known."""
    sizes = tuple(math.prod(tuple(one.shape)) for one in variables)
    return Trained(sum(sizes), len(sizes), sizes)


class Leader:
    """Of several things that step in turns, the one whose steps count: the first."""

    def __init__(self) -> None:
        self._first: object = None
        self._others = 0

    def leads(self, one: object) -> bool:
        if one == self._first:
            self._others = 0
            return True
        self._others += 1
        if self._first is not None and self._others < OTHERS_IN_A_ROW:
            return False
        self._first, self._others = one, 0
        return True


class StepTimes:
    """The steps of one process, as one framework counts them: the first that ends one.

    Attributes:
        step: the last one that ended.
        samples: of a step, 0 where nobody knows.
    """

    def __init__(self, own: Witness) -> None:
        self.step = 0
        self.samples = 0
        self._own = own
        self._framework = ""
        self._input_s = 0.0
        self._running = False
        self._clock = StepClock(self._tell)
        own.before_end.append(self._clock.flush)

    def begin(self) -> None:
        """The step that runs began only now, whatever passed since the last one."""
        if self._running:
            self._clock.begin(self.step + 1)

    def start(self, framework: str, describe: Describe, trained: object) -> bool:
        """The very first step of what is `trained` begins, unless steps are counted already.

        Returns:
            Whether it is this framework that counts them.
        """
        if not self._framework:
            self._framework = framework
            self._tell_start(describe(trained))
        if framework != self._framework:
            return False
        self._running = True
        return True

    def leave_out(self, seconds: float) -> None:
        """So much of the running step was spent on something else, such as a save."""
        self._clock.leave_out(seconds)

    def end(
        self,
        framework: str,
        describe: Describe,
        trained: object,
        *,
        steps: int = 1,
        input_s: float = 0.0,
    ) -> None:
        """So many steps of what is `trained` have ended, and the next one begins. input_s: how
        long they waited for their data."""
        timed = self._running  # of the very first one nobody may have seen the beginning
        if not self.start(framework, describe, trained):
            return
        if timed:
            self._input_s += input_s
            self._clock.end(steps)
        self.step += steps
        self.begin()

    def _tell(self, first: int, seconds: tuple[float, ...]) -> None:
        self._own.say(
            StepsDone(
                rank=self._own.rank,
                first=first,
                seconds=tuple(round(s, 7) for s in seconds),
                samples_per_step=self.samples,
                input_s=round(self._input_s, 7),
            )
        )
        self._input_s = 0.0

    def _tell_start(self, trained: Trained) -> None:
        self._own.say(
            PhaseDone(
                rank=self._own.rank,
                name="start",
                seconds=process_age_s(),
                parameters=trained.parameters,
                tensors=trained.tensors,
                variables=trained.variables,
            )
        )


_times: StepTimes | None = None


def step_times() -> StepTimes:
    """Those of this process. Raises what `witness` does."""
    global _times
    if _times is None:
        _times = StepTimes(witness())
    return _times
