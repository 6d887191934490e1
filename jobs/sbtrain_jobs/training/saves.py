"""The saves of a trainer's loop: when one is due, which was the last, what is said of it."""

from __future__ import annotations

import logging
import math
import threading
import time

from sbtrain_jobs.errors import CheckpointError
from sbtrain_jobs.training.checkpoint import Checkpoint, CheckpointStore, Save
from sbtrain_jobs.training.context import TrainerContext
from sbtrain_jobs.training.reports import Reports
from sbtrain_jobs.training.step_gate import StepGate

_log = logging.getLogger("sbtrain.run")


class Saves:
    """Saves on the chief alone.

    Attributes:
        last: what was resumed from, or saved since; whole.
        due_at: time.perf_counter() of the next periodic save.
    """

    def __init__(
        self,
        context: TrainerContext,
        *,
        store: CheckpointStore,
        gate: StepGate,
        reports: Reports,
    ) -> None:
        self.last: Checkpoint | None = None
        self.due_at = math.inf
        self._context = context
        self._store = store
        self._gate = gate
        self._reports = reports
        self._lock = threading.Lock()
        self._announced = False

    def begin(self, start: int, save: Save | None) -> None:
        """The loop starts after step `start`.

        Raises:
            CheckpointError: nothing can be saved in the folder.
        """
        if start and self.last is None:
            self.last = self._store.valid(start) if self._store.published(start) else None
        if self._context.is_chief and save is not None and start < self._context.steps:
            self._store.check()
        self._schedule()

    def on_the_way(self, step: int, save: Save | None) -> None:
        """A periodic save; one that fails is said."""
        if save is not None and step < self._context.steps:
            try:
                self._save(step, save)
            except CheckpointError as error:
                if isinstance(error.__cause__, SystemExit):
                    raise
                _log.warning(
                    "sbtrain: %s (%s); the next save tries again", error.message, error.hint
                )
        self._schedule()

    def last_of(self, step: int, save: Save) -> None:
        """Save the state after the last step that is run, unless that is saved already."""
        if self.last is None or self.last.step != step:
            self._save(step, save)

    def announce(self) -> None:
        """Say Saved once, as soon as the agreed last step is on disk; either thread."""
        stop_after, saved = self._gate.stop_after, self.last
        if not self._context.is_chief or stop_after is None or saved is None:
            return
        if saved.step < min(stop_after, self._context.steps):
            return
        with self._lock:
            if self._announced:
                return
            self._announced = True
        self._reports.saved(saved)

    def _schedule(self) -> None:
        interval_s = self._context.checkpoint_interval_s
        if self._context.is_chief and interval_s > 0:
            self.due_at = time.perf_counter() + interval_s

    def _save(self, step: int, save: Save) -> None:
        began = time.perf_counter()
        try:
            saved = self._store.write(step, save)
        except SystemExit as left:
            if left.code:
                raise
            raise CheckpointError(
                f"the save function ended the process while it saved step {step}: "
                "nothing was saved",
                hint="let it return; to end training early, leave the loop of steps",
            ) from left
        seconds = time.perf_counter() - began
        self.last = saved
        self._reports.phase("checkpoint", seconds, step=step, size_bytes=saved.size_bytes)
