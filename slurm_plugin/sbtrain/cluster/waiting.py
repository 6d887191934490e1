"""Waiting that is never silent for long."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

SILENCE_S = 2.0


@dataclass(slots=True)
class Wait:
    """One wait: call look() each time round; it says once what is waited for."""

    say: Callable[[], None]
    begin: float = field(default_factory=time.monotonic)
    told: bool = False

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begin

    def look(self) -> None:
        if not self.told and self.seconds > SILENCE_S:
            self.told = True
            self.say()
