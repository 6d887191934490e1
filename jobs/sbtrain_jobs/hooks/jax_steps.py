"""JAX's steps: a call of a jitted function in which a gradient is taken ends one; of several
such functions, the first.

What `jax.jit` gives the user's own files, Flax and Equinox is held in an object that passes
everything on. It looks at the clock when a call has returned, and waits for no device. What is
compiled ahead of time, or takes many steps in one call, is not seen as steps.
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

from sbtrain_jobs.hooks.step_times import Leader, step_times

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
        before = _tracing.gradients
        _tracing.held = True
        try:
            result = self._jitted(*args, **named)
        finally:
            _tracing.held = False
        if self._takes_gradients is None:
            self._takes_gradients = _tracing.gradients > before
        if self._takes_gradients:
            _called(self)
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


def _called(held: Compiled) -> None:
    try:
        from jax._src.core import trace_state_clean

        if trace_state_clean() and _leader.leads(id(held)):
            step_times().end("jax", _unknown, held)
    except Exception:
        return


def _unknown(_: object) -> tuple[None, None]:
    return None, None
