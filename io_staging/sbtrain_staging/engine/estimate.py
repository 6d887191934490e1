"""What staging would do: how much there is to move, and about how long it takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sbtrain_staging.engine.schedule import chunk_size
from sbtrain_staging.engine.simulate import Rates
from sbtrain_staging.reports.progress import shown_bytes
from sbtrain_staging.sources.manifest import Kind, Manifest

# Creating one file on a node's disk, measured with 100 KB files on a local filesystem.
PER_FILE_S = 1e-4


@dataclass(frozen=True, slots=True, kw_only=True)
class StagingEstimate:
    """Staging one source to some nodes.

    Attributes:
        data_bytes: what leaves the shared filesystem, once.
        replicate_s: until all nodes hold everything.
        first_s: until the first chunk is on the last node, when training may begin.
        in_place_s: one reading of everything by all nodes together, each its share,
            straight from the shared filesystem at the same rate.
        local_s: the same reading from the nodes' own scratch, after staging.
        shard_s: until every node holds its part.
        exchange_s: until every node holds its part of another epoch, from its neighbours.
        stream_epochs: training of up to so many epochs is done sooner by reading in place
            (`run --mode stream`) than by staging first; None where that holds for
            any number: scratch is no faster.
    """

    source: str
    files: int
    data_bytes: int
    chunk_bytes: int
    nodes: int
    replicate_s: float
    first_s: float
    in_place_s: float
    local_s: float
    shard_s: float
    exchange_s: float
    stream_epochs: float | None


def forecast(manifest: Manifest, nodes: int, rates: Rates) -> StagingEstimate:
    """Closed form of the simulation: the slowest stage, and the filling of the chain.

    Whether streaming wins is our own comparison of two sums over epochs, both bound by
    reading: in_place_s for each epoch, or replicate_s once and local_s for each epoch.
    """
    data_bytes = manifest.data_bytes
    files = sum(1 for _ in manifest.of_kind(Kind.FILE))
    chunk_bytes = min(chunk_size(data_bytes, nodes), max(1, data_bytes))
    slowest = min(rates.source_bytes_per_s, rates.link_bytes_per_s, rates.scratch_bytes_per_s)
    hop_s = chunk_bytes / rates.link_bytes_per_s + rates.per_chunk_s
    first_s = rates.start_s + chunk_bytes / rates.source_bytes_per_s + (nodes - 1) * hop_s
    replicate_s = first_s + data_bytes / slowest + files * PER_FILE_S
    share_bytes = data_bytes / nodes
    in_place_s = data_bytes / rates.source_bytes_per_s
    local_s = share_bytes / rates.scratch_bytes_per_s
    saved_s = in_place_s - local_s
    # A part moves but for the 1/nodes that its node holds already.
    moved_bytes = share_bytes * (nodes - 1) / nodes
    return StagingEstimate(
        source=manifest.root,
        files=files,
        data_bytes=data_bytes,
        chunk_bytes=chunk_bytes,
        nodes=nodes,
        replicate_s=replicate_s,
        first_s=first_s,
        in_place_s=in_place_s,
        local_s=local_s,
        shard_s=rates.start_s + max(in_place_s, local_s) + files / nodes * PER_FILE_S,
        exchange_s=rates.start_s
        + max(moved_bytes / rates.link_bytes_per_s, 2 * local_s)
        + files / nodes * PER_FILE_S,
        stream_epochs=replicate_s / saved_s if saved_s > 0 else None,
    )


def _verdict(found: StagingEstimate) -> str:
    if found.stream_epochs is None:
        return "  --mode stream wins always: scratch is no faster than the shared filesystem"
    return f"  --mode stream wins for up to {math.floor(found.stream_epochs)} epochs"


def shown_forecasts(forecasts: Sequence[StagingEstimate]) -> str:
    lines = []
    for found in forecasts:
        lines += [
            f"{found.source}: {found.files} files, {shown_bytes(found.data_bytes)}",
            f"  read once, to {found.nodes} nodes in chunks of "
            f"{shown_bytes(found.chunk_bytes)}: about {found.replicate_s:.1f} s",
            f"  training can begin after about {found.first_s:.1f} s",
            f"  without staging: about {found.in_place_s:.1f} s of reading in every epoch",
            f"  as shards (--mode shard): about {found.shard_s:.1f} s, then "
            f"{found.exchange_s:.1f} s to deal anew for another epoch",
            _verdict(found),
        ]
    return "\n".join(lines) + "\n"
