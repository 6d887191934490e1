"""Dealing the files of a source out among the nodes, for data-parallel epochs."""

from __future__ import annotations

import heapq

from sbtrain_staging.errors import SourceError
from sbtrain_staging.manifest import Kind, Manifest
from sbtrain_staging.reader import epoch_order


def shard_of(manifest: Manifest, *, rank: int, size: int, seed: int | None) -> Manifest:
    """The part of a source that one node keeps: its files, with all folders and links.

    Every file goes to exactly one node: in the order of the seed (None: of their names),
    each to the node that has the fewest bytes so far. So shards differ by at most the
    largest file.

    Raises:
        SourceError: the source is one file, or has fewer files than there are nodes.
    """
    files = list(manifest.of_kind(Kind.FILE))
    if manifest.kinds[0] != Kind.FOLDER or len(files) < size:
        raise SourceError(
            f"{manifest.root} holds {len(files)} files, too few to deal out to {size} nodes",
            hint="stage it with --mode replicate, or split it into more files",
        )
    order = range(len(files)) if seed is None else epoch_order(len(files), seed)
    loads = [(0, node) for node in range(size)]
    kept = set(manifest.of_kind(Kind.FOLDER)) | set(manifest.of_kind(Kind.LINK))
    for place in order:
        load, node = loads[0]
        heapq.heapreplace(loads, (load + manifest.sizes_bytes[files[place]], node))
        if node == rank:
            kept.add(files[place])
    return Manifest(
        root=manifest.root,
        name=manifest.name,
        entries=(manifest[index] for index in sorted(kept)),
    )
