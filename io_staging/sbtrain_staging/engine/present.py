"""What a node has of a source from earlier runs: found, held for this job, and hashed anew."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sbtrain_staging.cache.checking import Structure, is_whole
from sbtrain_staging.cache.node_cache import FoundCopy, NodeCache
from sbtrain_staging.engine.rank import Rank
from sbtrain_staging.sources.manifest import Manifest
from sbtrain_staging.sources.pieces import PieceTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """A copy that was on the node when the run began.

    Attributes:
        whole: whether it is unharmed; else it is good for what of it still has its hash.
    """

    copy: FoundCopy
    whole: bool

    @property
    def place(self) -> Path | None:
        """Where the data is, if it may be used as it is."""
        return self.copy.path if self.whole else None


def find_present(
    rank: Rank,
    cache: NodeCache,
    manifest: Manifest,
    table: PieceTable,
    *,
    structure: Structure,
    before: Present | None,
) -> Present | None:
    """Find this node's copy and look at every byte of it; every rank must call it.

    Args:
        before: what an earlier look of this run found: that is not looked at again.

    Raises:
        StagingError: the same error on every rank.
    """
    found: list[FoundCopy | None] = []
    rank.on_scratch(cache.root, lambda: found.append(_held(rank, cache, manifest)))
    copy = found[0]
    if copy is None:
        before = None
    known = before is not None and copy is not None and before.copy.identity == copy.identity
    to_check = 0 if copy is None or known else manifest.data_bytes
    wanted = [int(said) for said in rank.world.exchange(b"%d" % to_check)]
    if any(wanted):
        rank.progress.begin(f"checking the copy of {manifest.name}", wanted)
    seen = [before]

    def check() -> None:
        if copy is None or known:
            return
        whole = is_whole(
            copy.path.parent,
            manifest,
            table,
            copy.digests,
            structure=structure,
            tick=lambda done_bytes: _tell(rank, done_bytes),
        )
        seen[0] = Present(copy=copy, whole=whole)
        if whole:
            with cache.locked():
                cache.drop_partial(manifest.version)

    rank.on_scratch(cache.root, check)
    rank.tally.checked_bytes += to_check
    if any(wanted):
        rank.progress.end(wanted)
    return seen[0]


def _held(rank: Rank, cache: NodeCache, manifest: Manifest) -> FoundCopy | None:
    with cache.locked():
        cache.sweep(keep=manifest.version)
        copy = cache.find(manifest)
        if copy is not None:
            cache.pin(copy.path.parent.name, rank.settings.key, rank.until_s())
        return copy


def _tell(rank: Rank, done_bytes: int) -> None:
    rank.world.tell(done_bytes)
    if rank.world.rank == 0:
        rank.progress.show(rank.world.told())
