"""TensorFlow's steps outside of Keras's fit: a call of a tf.function in which a tape gives
gradients ends one, and so does such a function that a coordinator had a worker run; of several,
the first. Where nothing is traced, a tape's gradient ends one."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from sbtrain_jobs.hooks.step_times import Leader, Trained, step_times, trained_variables


def slip_into(module: ModuleType) -> None:
    if hasattr(module, "GradientTape"):
        module.GradientTape.gradient = _noticed(module.GradientTape.gradient)
    elif hasattr(module, "ClusterCoordinator"):
        module.Closure.__init__ = _scheduled(module.Closure.__init__)
        module.Closure.execute_on = _executed(module.Closure.execute_on)
    else:
        module.Function.__call__ = _called(module.Function.__call__)


class _Tracing:
    """gradients: taken while functions were traced; trained: of what, the last time."""

    gradients = 0
    trained = Trained()


_MARK = "_sbtrain_step"  # of a function: its calls are steps
_tracing = _Tracing()
_leader = Leader()
_busy = threading.Lock()  # the threads of a coordinator, one a worker


def _noticed(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def gradient(self: Any, target: Any, sources: Any, *args: Any, **named: Any) -> Any:
        result = original(self, target, sources, *args, **named)
        try:
            if _eager():
                caller = sys._getframe(1)
                _ended((id(caller.f_code), caller.f_lineno), sources)
            else:
                _tracing.gradients += 1
                _tracing.trained = _described(sources)
        except Exception:
            return result
        return result

    return gradient


def _called(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def called(self: Any, /, *args: Any, **named: Any) -> Any:
        before = _tracing.gradients
        result = original(self, *args, **named)
        try:
            if _eager():
                if _tracing.gradients > before:
                    setattr(self, _MARK, True)
                if _MARK in vars(self):
                    _ended(id(self))
        except Exception:
            return result
        return result

    return called


def _scheduled(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def scheduled(self: Any, function: Any, /, *args: Any, **named: Any) -> None:
        before = _tracing.gradients
        original(self, function, *args, **named)
        try:
            if _tracing.gradients > before:
                setattr(function, _MARK, True)
            if _MARK in vars(function):
                setattr(self, _MARK, id(function))
        except Exception:
            return

    return scheduled


def _executed(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def executed(self: Any, worker: Any) -> None:
        original(self, worker)
        try:
            if _MARK in vars(self):
                _ended(getattr(self, _MARK))
        except Exception:
            return

    return executed


def _eager() -> bool:
    from tensorflow.python.eager import context

    return bool(context.executing_eagerly())


def _ended(what: object, sources: Any = None) -> None:
    with _busy:
        if _leader.leads(what):
            step_times().end("tensorflow", _described, sources)


def _described(sources: Any) -> Trained:
    """What gradients are taken of; of None those that were traced last."""
    if sources is None:
        return _tracing.trained
    from tensorflow import nest

    return trained_variables(nest.flatten(sources))
