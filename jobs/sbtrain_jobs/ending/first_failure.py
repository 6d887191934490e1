"""Which rank of a run failed first: the one whose script was over first, though its process may
end after those that it took with it (MPI waits for the others, their calls fail meanwhile)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

ENDS_WITHIN_S = 5.0  # a process whose script is over, once another one has failed


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFailure:
    rank: int
    returncode: int


class FirstFailure:
    """Bookkeeping only."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._over: list[int] = []  # ranks whose script was seen to be over, in that order
        self._ended: set[int] = set()
        self._failed: list[RoleFailure] = []
        self._since_s = 0.0  # of the first failure

    def script_over(self, rank: int) -> None:
        if rank not in self._over and rank not in self._ended:
            self._over.append(rank)

    def ended(self, rank: int, returncode: int) -> None:
        self._ended.add(rank)
        if returncode != 0:
            if not self._failed:
                self._since_s = self._clock()
            self._failed.append(RoleFailure(rank=rank, returncode=returncode))

    def found(self, *, at_last: bool = False) -> RoleFailure | None:
        """The first failure, once it is sure or has been waited for long enough; None where
        there is none, or not yet. at_last: no rank will end any more."""
        if not self._failed:
            return None
        first = min(self._failed, key=self._place)
        earlier = [rank for rank in self._over if self._over.index(rank) < self._place(first)]
        waiting = not at_last and self._clock() < self._since_s + ENDS_WITHIN_S
        return None if waiting and set(earlier) - self._ended else first

    def _place(self, failure: RoleFailure) -> int:
        """One that was ended from outside said nothing."""
        return self._over.index(failure.rank) if failure.rank in self._over else -1
