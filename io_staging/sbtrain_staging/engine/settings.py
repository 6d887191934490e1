"""How to stage: what the command line says, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEFAULT_HOLD_S = 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How to stage.

    Attributes:
        to: template of the scratch folder; see scratch.expand_template.
        key: the job or run that counts on the copies.
        expect_bytes: size that all sources together must have, where it is known.
        quota_bytes: most bytes of copies that may lie on one node; None is no limit.
        readers: nodes that read the source at the same time, each its own part.
        hold_s: how long the copies are kept for this key at least.
        order_seed: files arrive in the order that order.epoch_order draws from it; None
            is the order of their names.
        mode: "replicate" (all nodes hold all), "shard" (each node holds its part) or
            "stream" (nothing is copied; the report names the source itself).
        share: "auto" (nodes on one filesystem of one host copy once and link) or "never".
        events: where progress is logged, for programs that look on; None is nowhere.
        epoch: for which parts are dealt; from the second on, older parts are given up.
        quiet: no progress on stderr.
    """

    to: str
    key: str
    expect_bytes: int | None = None
    quota_bytes: int | None = None
    readers: int = 1
    hold_s: float = DEFAULT_HOLD_S
    order_seed: int | None = None
    mode: str = "replicate"
    share: str = "auto"
    events: Path | None = None
    epoch: int = 0
    quiet: bool = False
