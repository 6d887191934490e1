"""JAX's steps: each call of a jitted function in which a gradient is taken is one; of several
such functions, the first.

What `jax.jit` gives the user's own files, Flax and Equinox is held in an object that passes
everything on. A call only hands a step over, and nothing here waits for a device: where a new
call finds the results of those before it ready, they have ended, and had as long as each other.
What is compiled ahead of time, or takes many steps in one call, is not seen as steps.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
from collections.abc import Callable
from operator import getitem
from types import MethodType, ModuleType
from typing import Any

from sbtrain_jobs.hooks.step_times import Leader, Trained, step_times

MOST_PENDING = 50  # steps of one time, where a script waits for none of them
ALSO = ("flax", "equinox")  # libraries whose users train through their own jit


def slip_into(module: ModuleType) -> None:
    """Hold what jit gives, or notice gradients."""
    if module.__name__ == "jax":
        module.jit = _holding(module.jit)  # type: ignore[attr-defined]
        return
    for name in [name for name in vars(module) if name.startswith("backward_pass")]:
        setattr(module, name, _noticed(getattr(module, name)))


class _Tracing:
    """gradients: taken while functions were traced. held: a call of a held one runs."""

    gradients = 0
    held = False


_tracing = _Tracing()
_leader = Leader()


def _noticed(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def noticed(*args: Any, **named: Any) -> Any:
        _tracing.gradients += 1
        return original(*args, **named)

    return noticed


def _holding(jit: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(jit)
    def holding(*args: Any, **named: Any) -> Any:
        given = jit(*args, **named)
        if not _trains(sys._getframe(1).f_code.co_filename):
            return given
        if hasattr(given, "lower"):
            return Compiled(given)
        return lambda fun: Compiled(given(fun))  # jit(static_argnames=...) as a decorator

    return holding


@functools.cache
def _trains(file: str) -> bool:
    """Whether a file is the user's, or of a library that users train through."""
    places = sysconfig.get_paths()
    for name in ("purelib", "platlib", "stdlib"):
        inside = file.startswith(places[name] + os.sep)
        if inside or f"{os.sep}site-packages{os.sep}" in file:
            return any(f"{os.sep}{one}{os.sep}" in file for one in ALSO)
    return True


class Compiled:
    """A jitted function, called through here. It pickles as what it holds."""

    def __init__(self, jitted: Any) -> None:
        functools.update_wrapper(self, jitted)
        self._jitted = jitted
        self._takes_gradients: bool | None = None

    def __call__(self, /, *args: Any, **named: Any) -> Any:
        if _tracing.held:
            return self._jitted(*args, **named)
        if self._takes_gradients:
            _steps.look(self)
        before = _tracing.gradients
        _tracing.held = True
        try:
            result = self._jitted(*args, **named)
        finally:
            _tracing.held = False
        if self._takes_gradients is None:
            self._takes_gradients = _tracing.gradients > before
        if self._takes_gradients:
            _steps.handed_over(self, result)
        return result

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __getattr__(self, name: str) -> Any:
        if name == "_jitted":  # of one that is being copied
            raise AttributeError(name)
        return getattr(self._jitted, name)

    def __reduce__(self) -> Any:
        return getitem, ((self._jitted,), 0)

    def __repr__(self) -> str:
        return repr(self._jitted)


class _Steps:
    """Those that were handed over. result: of the last, as long as it may not be ready."""

    def __init__(self) -> None:
        self._pending = 0
        self._result: Any = None

    def handed_over(self, held: Compiled, result: Any) -> None:
        try:
            from jax._src.core import trace_state_clean

            if trace_state_clean() and _leader.leads(id(held)):
                self._pending += 1
                self._result = _one_of(result)
        except Exception:
            return

    def look(self, held: Compiled) -> None:
        """Whether those before have ended, before the next one is handed over."""
        if not self._pending or not _leader.leads(id(held)):
            return
        try:
            if self._pending >= MOST_PENDING or _is_ready(self._result):
                step_times().end("jax", _unknown, held, steps=self._pending)
                self._pending = 0
        except Exception:
            self._pending = 0
        self._result = None


def _one_of(result: Any) -> Any:
    """Any array of a result. They are ready together."""
    while type(result) in (tuple, list, dict) and result:
        result = list(result.values())[-1] if type(result) is dict else result[-1]
    if hasattr(result, "is_ready"):
        return result
    from jax.tree_util import tree_leaves

    return next((one for one in tree_leaves(result) if hasattr(one, "is_ready")), None)


def _is_ready(array: Any) -> bool:
    return array is None or array.is_deleted() or bool(array.is_ready())


_steps = _Steps()


def _unknown(_: object) -> Trained:
    return Trained()
