"""One rank of a staging run: whom it speaks to, what it was told, and what it did so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sbtrain_staging.cache.scratch import scratch_trouble
from sbtrain_staging.engine.settings import Settings
from sbtrain_staging.ranks.world import World, together
from sbtrain_staging.reports.progress import StagingProgress
from sbtrain_staging.reports.run_report import StagedSource


@dataclass(slots=True)
class Tally:
    """What a rank did so far."""

    received_bytes: int = 0
    linked_bytes: int = 0
    source_bytes_read: int = 0
    checked_bytes: int = 0
    paths: list[str] = field(default_factory=list)
    sources: list[StagedSource] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """This rank.

    Attributes:
        names: of all nodes, by rank.
    """

    world: World
    settings: Settings
    environ: Mapping[str, str]
    names: tuple[str, ...]
    progress: StagingProgress
    tally: Tally

    @property
    def name(self) -> str:
        return self.names[self.world.rank]

    def until_s(self) -> float:
        """When a copy made now is no longer held for this key, in seconds since 1970."""
        return time.time() + self.settings.hold_s

    def together(self, step: Callable[[], None]) -> None:
        """Do a step on all ranks; raises the first rank's error on all."""

        def nothing() -> bytes:
            step()
            return b""

        together(self.world, nothing)

    def on_scratch(self, where: Path, step: Callable[[], None]) -> None:
        """Do a step that writes to scratch, on all ranks."""

        def explained() -> None:
            try:
                step()
            except OSError as error:
                raise scratch_trouble(where, error, self.environ) from None

        self.together(explained)
