"""What staging would do: how much there is to move, and about how long it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sbtrain_staging.manifest import Kind, Manifest
from sbtrain_staging.progress import shown_bytes
from sbtrain_staging.schedule import chunk_size
from sbtrain_staging.simulate import Rates

# Creating one file on a node's disk, measured with 100 KB files on a local filesystem.
PER_FILE_S = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Staging one source to some nodes.

    Attributes:
        data_bytes: what leaves the shared filesystem, once.
        replicate_s: until all nodes hold everything.
        first_s: until the first chunk is on the last node, when training may begin.
        in_place_s: one reading of everything by all nodes together, each its share,
            straight from the shared filesystem at the same rate.
    """

    source: str
    files: int
    data_bytes: int
    chunk_bytes: int
    nodes: int
    replicate_s: float
    first_s: float
    in_place_s: float


def forecast(manifest: Manifest, nodes: int, rates: Rates) -> Forecast:
    """Closed form of the simulation: the slowest stage, and the filling of the chain."""
    data_bytes = manifest.data_bytes
    files = sum(1 for _ in manifest.of_kind(Kind.FILE))
    chunk_bytes = min(chunk_size(data_bytes, nodes), max(1, data_bytes))
    slowest = min(rates.source_bytes_per_s, rates.link_bytes_per_s, rates.scratch_bytes_per_s)
    hop_s = chunk_bytes / rates.link_bytes_per_s + rates.per_chunk_s
    first_s = rates.start_s + chunk_bytes / rates.source_bytes_per_s + (nodes - 1) * hop_s
    return Forecast(
        source=manifest.root,
        files=files,
        data_bytes=data_bytes,
        chunk_bytes=chunk_bytes,
        nodes=nodes,
        replicate_s=first_s + data_bytes / slowest + files * PER_FILE_S,
        first_s=first_s,
        in_place_s=data_bytes / rates.source_bytes_per_s,
    )


def shown_forecasts(forecasts: Sequence[Forecast]) -> str:
    lines = []
    for found in forecasts:
        lines += [
            f"{found.source}: {found.files} files, {shown_bytes(found.data_bytes)}",
            f"  read once, to {found.nodes} nodes in chunks of "
            f"{shown_bytes(found.chunk_bytes)}: about {found.replicate_s:.1f} s",
            f"  training can begin after about {found.first_s:.1f} s",
            f"  without staging: about {found.in_place_s:.1f} s of reading in every epoch",
        ]
    return "\n".join(lines) + "\n"
