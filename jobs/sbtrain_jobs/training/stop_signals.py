"""The signals that may reach a trainer: taken while the run lasts, given back after it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers | None


class StopSignals:
    """Calls `act` with the number of each signal; in the main thread, between bytecodes.

    Outside the main thread Python cannot take signals, and none is taken.
    """

    def __init__(self, numbers: Iterable[int], act: Callable[[int], None]) -> None:
        self._act = act
        self._before: dict[int, Handler] = {}
        if threading.current_thread() is threading.main_thread():
            for number in set(numbers):
                self._before[number] = signal.signal(number, self._on_signal)

    def give_back(self) -> None:
        """Let the handlers that were there before act again."""
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._before.clear()

    def ignore(self) -> None:
        """The process ends now: one more signal must not change its exit status."""
        for number in self._before:
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._act(number)
