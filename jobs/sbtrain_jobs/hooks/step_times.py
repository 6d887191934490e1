"""The times of steps that hooks see, and what is trained in them: told in batches, like those
of a script that joins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sbtrain_jobs.hooks.witness import Witness, witness
from sbtrain_jobs.training.step_clock import StepClock, process_age_s
from sbtrain_jobs.wire.messages import PhaseDone, StepsDone

Describe = Callable[[Any], "tuple[int, int]"]  # parameters and tensors of what is trained


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
        self._running = False
        self._clock = StepClock(self._tell)
        own.before_end.append(self._clock.flush)

    def begin(self) -> None:
        """The next step begins now, whatever passed since the last one."""
        self._running = True
        self._clock.begin(self.step + 1)

    def leave_out(self, seconds: float) -> None:
        """So much of the running step was spent on something else, such as a save."""
        self._clock.leave_out(seconds)

    def end(
        self, framework: str, describe: Describe, trained: object, *, steps: int = 1
    ) -> None:
        """So many steps of what is `trained` have ended, and the next one begins."""
        if framework != self._framework:
            if self._framework:
                return
            self._framework = framework
            self._tell_start(*describe(trained))
        if self._running:  # of the very first one nobody saw the beginning
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
            )
        )

    def _tell_start(self, parameters: int, tensors: int) -> None:
        self._own.say(
            PhaseDone(
                rank=self._own.rank,
                name="start",
                seconds=process_age_s(),
                parameters=parameters,
                tensors=tensors,
            )
        )


_times: StepTimes | None = None


def step_times() -> StepTimes:
    """Those of this process. Raises what `witness` does."""
    global _times
    if _times is None:
        _times = StepTimes(witness())
    return _times
