"""The gate before every step: lets the main thread through, holds it, or ends its steps.

Shared by the main thread, which enters each step, and the link's thread, which holds and
releases. Passing an open gate costs one uncontended lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class StepGate:
    """Agrees with the outside on the last step.

    Args:
        hold_limit_s: seconds after which a hold that nobody resolves is given up, so that
            a supervisor that hangs does not hang the training.
        on_overdue: called in the main thread when that happens.
    """

    def __init__(
        self, *, hold_limit_s: float = 60.0, on_overdue: Callable[[], None] | None = None
    ) -> None:
        self._condition = threading.Condition()
        self._hold_limit_s = hold_limit_s
        self._on_overdue = on_overdue
        self._step = 0
        self._holding = False
        self._stop_after: int | None = None

    @property
    def step(self) -> int:
        """The step that is running, or the last one that has finished."""
        return self._step

    @property
    def stop_after(self) -> int | None:
        """The last step that may be run, once it is agreed."""
        return self._stop_after

    def resume_from(self, step: int) -> None:
        """Main thread: `step` was finished by an earlier attempt."""
        with self._condition:
            self._step = step

    def enter(self, step: int) -> bool:
        """Main thread: ask to start `step`. Waits while the gate holds.

        Returns:
            False when the agreed last step lies before it.
        """
        with self._condition:
            if self._holding:
                self._wait()
            if self._stop_after is not None and step > self._stop_after:
                return False
            self._step = step
            return True

    def hold(self) -> int:
        """Link thread: start no later step until told. Returns the step that is running
        or has finished."""
        with self._condition:
            self._holding = self._stop_after is None
            return self._step

    def finish_at(self, step: int) -> None:
        """Let steps up to `step` through and none after it. The first call counts."""
        with self._condition:
            if self._stop_after is None:
                self._stop_after = step
            self._holding = False
            self._condition.notify_all()

    def open(self) -> None:
        """Let all steps through again: whoever asked to hold is gone."""
        with self._condition:
            self._holding = False
            self._condition.notify_all()

    def _wait(self) -> None:
        if not self._condition.wait_for(lambda: not self._holding, self._hold_limit_s):
            self._holding = False
            if self._on_overdue is not None:
                self._on_overdue()
