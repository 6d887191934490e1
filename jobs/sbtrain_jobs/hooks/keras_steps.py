"""Keras's steps: the batches of Model.fit, by the list of callbacks that every fit makes. The
first step of an epoch begins with the epoch, so that evaluation belongs to none."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from sbtrain_jobs.hooks.step_times import Trained, step_times, trained_variables

Told = Callable[..., None]


def slip_into(module: ModuleType) -> None:
    """Listen to the class CallbackList of a module, once."""
    callbacks = module.CallbackList
    if "_sbtrain_first" in vars(callbacks):
        return
    callbacks._sbtrain_first = (
        0  # batch of the execution that runs; there may be several in one
    )
    _tell(callbacks, "on_epoch_begin", _epoch_begins)
    _tell(callbacks, "on_train_batch_begin", _batch_begins)
    _tell(callbacks, "on_train_batch_end", _batch_ended)


def _tell(owner: Any, name: str, told: Told) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def telling(self: Any, batch: Any, *args: Any, **named: Any) -> Any:
        with contextlib.suppress(Exception):
            told(self, batch)
        return original(self, batch, *args, **named)

    setattr(owner, name, telling)


def _epoch_begins(callbacks: Any, _: int) -> None:
    times = step_times()
    if times.start("keras", _described, callbacks):
        times.begin()


def _batch_begins(callbacks: Any, batch: int) -> None:
    callbacks._sbtrain_first = batch


def _batch_ended(callbacks: Any, batch: int) -> None:
    steps = max(1, int(batch) - callbacks._sbtrain_first + 1)
    step_times().end("keras", _described, callbacks, steps=steps)


def _described(callbacks: Any) -> Trained:
    model = getattr(callbacks, "_model", None) or callbacks.model
    return trained_variables(model.trainable_variables)
