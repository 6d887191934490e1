"""A simulation of the copy engine's chain, for more nodes than one can try.

Every chunk takes each link in turn; a node hands a chunk on once it has all of it, and takes
the next one while a slot is free. Rates and per-chunk costs are measured or given. Our own
construction, checked against measured runs in an emulated machine room.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from sbtrain_staging.engine.pipeline import SLOTS_PER_LANE
from sbtrain_staging.engine.schedule import chunk_size


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """What a machine room gives.

    Attributes:
        source_bytes_per_s: one node's reading of the shared filesystem.
        link_bytes_per_s: between two nodes.
        scratch_bytes_per_s: writing to a node's scratch.
        per_chunk_s: cost of handing on a chunk, beside its bytes.
        start_s: before the first chunk and after the last: manifest, checks, publishing.
        start_per_node_s: the part of that which grows with each node.
    """

    source_bytes_per_s: float
    link_bytes_per_s: float
    scratch_bytes_per_s: float = math.inf
    per_chunk_s: float = 0.0
    start_s: float = 0.0
    start_per_node_s: float = 0.0


def simulated_seconds(data_bytes: int, nodes: int, rates: Rates) -> float:
    """Time until all nodes hold a data set that is read by the first of them.

    One pass over the chunks for each node; O(nodes x chunks).
    """
    chunk_bytes = chunk_size(data_bytes, nodes)
    chunks = max(1, math.ceil(data_bytes / chunk_bytes))
    size = data_bytes / chunks
    read_s = size / rates.source_bytes_per_s
    hop_s = size / rates.link_bytes_per_s + rates.per_chunk_s
    write_s = size / rates.scratch_bytes_per_s
    # When each chunk has left the slots of a node: only then may one more come.
    arrived = [(number + 1) * read_s for number in range(chunks)]
    finished = _written(arrived, write_s)
    for _ in range(nodes - 1):
        here: list[float] = []
        last = 0.0
        for number in range(chunks):
            ready = max(arrived[number], last)
            if number >= SLOTS_PER_LANE:
                ready = max(ready, here[number - SLOTS_PER_LANE] + write_s)
            last = ready + hop_s
            here.append(last)
        arrived = here
        finished = max(finished, _written(here, write_s))
    return rates.start_s + rates.start_per_node_s * nodes + finished


def _written(arrived: list[float], write_s: float) -> float:
    """When the last chunk is on the disk."""
    done = 0.0
    for moment in arrived:
        done = max(done, moment) + write_s
    return done
