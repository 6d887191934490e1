"""Which ranks are at work, though nothing is heard of them: by what their nodes tell of what
they compute and read."""

from __future__ import annotations

from sbtrain_jobs.wire.messages import Pulse

EVERY_S = 5.0
HOLDS_S = 12.0  # so long after its last sign a rank is taken to be at work
CPU_SHARE = 0.05  # of one core; what only polls takes less
IO_BYTES = 1 << 20
FAULTS = 20  # pages read from a file that is mapped, such as a library


class Pulses:
    """Bookkeeping only."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[float, Pulse]] = {}
        self._at_work_s: dict[int, float] = {}
        self._asked_s: float | None = None

    def due(self, now_s: float) -> bool:
        """Whether nodes are to be asked now."""
        if self._asked_s is not None and now_s < self._asked_s + EVERY_S:
            return False
        self._asked_s = now_s
        return True

    def heard(self, said: Pulse, now_s: float) -> None:
        before = self._last.get(said.rank)
        self._last[said.rank] = (now_s, said)
        if before is not None and _worked(before[1], said, now_s - before[0]):
            self._at_work_s[said.rank] = now_s

    def at_work(self, rank: int, now_s: float) -> bool:
        seen_s = self._at_work_s.get(rank)
        return seen_s is not None and now_s <= seen_s + HOLDS_S


def _worked(before: Pulse, now: Pulse, seconds: float) -> bool:
    return (
        (before.on_disk and now.on_disk)
        or now.cpu_s - before.cpu_s >= CPU_SHARE * seconds
        or now.io_bytes - before.io_bytes >= IO_BYTES
        or now.faults - before.faults >= FAULTS
    )
