"""The order in which an epoch draws files, and in which their pieces should arrive."""

from __future__ import annotations

import random

from sbtrain_staging.sources.manifest import Kind, Manifest
from sbtrain_staging.sources.pieces import PieceTable


def epoch_order(count: int, seed: int) -> list[int]:
    """The places of `count` files in the order in which a seed draws them."""
    places = list(range(count))
    random.Random(seed).shuffle(places)  # noqa: S311
    return places


def arrival_order(manifest: Manifest, table: PieceTable, seed: int) -> list[int]:
    """All pieces in the order in which epoch_order asks for their files."""
    files = list(manifest.of_kind(Kind.FILE))
    return [
        piece
        for place in epoch_order(len(files), seed)
        for piece in table.of_file(files[place])
    ]
