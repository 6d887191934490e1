"""Staging one source after another onto all nodes: the steps, in order, on every rank."""

from __future__ import annotations

import random
import resource
import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sbtrain_staging.cache import scratch
from sbtrain_staging.cache.node_cache import NodeCache
from sbtrain_staging.engine.copying import Copying
from sbtrain_staging.engine.neighbours import find_neighbours, nobody
from sbtrain_staging.engine.partial import PartialCopy
from sbtrain_staging.engine.present import Present, find_present
from sbtrain_staging.engine.rank import Rank, Tally
from sbtrain_staging.engine.settings import Settings
from sbtrain_staging.engine.shards import Share, share_of
from sbtrain_staging.errors import ScratchError, SourceError, WorldError
from sbtrain_staging.formats.hdf5_references import check_references, hdf5_files
from sbtrain_staging.ranks.world import World, node_name
from sbtrain_staging.reports.events import EventLog
from sbtrain_staging.reports.progress import StagingProgress
from sbtrain_staging.reports.run_report import (
    NodeReport,
    StagedSource,
    StagingReport,
    node_from_bytes,
    node_to_bytes,
)
from sbtrain_staging.sources.manifest import Kind, Manifest
from sbtrain_staging.sources.pieces import PieceTable
from sbtrain_staging.sources.scan import scan

_LOCK_WAIT_S = 3600.0


class Stager:
    """One rank of a staging run. All ranks make theirs at the same time."""

    def __init__(self, world: World, settings: Settings, environ: Mapping[str, str]) -> None:
        self._started_s = time.monotonic()
        names = world.exchange(node_name(environ).encode())
        self._names = tuple(found.decode() for found in names)
        self._world = world
        self._settings = settings
        self._environ = environ
        self._tally = Tally()
        self._neighbours = nobody(world.size)
        logged = settings.events if world.rank == 0 else None
        self._progress = StagingProgress(
            node_names=self._names,
            events=None if logged is None else EventLog(logged),
            quiet=settings.quiet,
        )
        self._rank = Rank(
            world=world,
            settings=settings,
            environ=environ,
            names=self._names,
            progress=self._progress,
            tally=self._tally,
        )

    def run(self, sources: Sequence[Path]) -> StagingReport:
        """Bring all sources to all nodes.

        Raises:
            StagingError: what went wrong on any rank; the same error on every rank.
        """
        stream = self._settings.mode == "stream"
        cache = None if stream else NodeCache(self._prepare_scratch())
        manifests = [scan(source, self._world) for source in sources]
        self._check_size(manifests)
        for source, manifest in zip(sources, manifests, strict=True):
            self._check_references(manifest, source)
        for manifest in manifests:
            if cache is None:
                self._tally.paths.append(manifest.root)
            else:
                self._stage(cache, manifest)
        seconds = time.monotonic() - self._started_s
        report = NodeReport(
            node=self._rank.name,
            bytes_received=self._tally.received_bytes,
            linked_bytes=self._tally.linked_bytes,
            source_bytes_read=self._tally.source_bytes_read,
            checked_bytes=self._tally.checked_bytes,
            seconds=round(seconds, 3),
            peak_memory_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            paths=tuple(self._tally.paths),
        )
        nodes = [node_from_bytes(line) for line in self._world.exchange(node_to_bytes(report))]
        return StagingReport(
            key=self._settings.key,
            mode=self._settings.mode,
            dataset_bytes=sum(manifest.size_bytes for manifest in manifests),
            source_bytes_read=sum(node.source_bytes_read for node in nodes),
            seconds=max(node.seconds for node in nodes),
            sources=tuple(self._tally.sources),
            nodes=tuple(nodes),
        )

    def _share(self, manifest: Manifest) -> Share | None:
        """The part of a source that is for this node, where it is not all."""
        settings = self._settings
        if settings.mode != "shard":
            return None
        return share_of(manifest, self._world, seed=settings.order_seed, epoch=settings.epoch)

    def _prepare_scratch(self) -> Path:
        found: list[Path] = []

        def step() -> None:
            to, say = self._settings.to, self._progress.say
            found.append(scratch.prepare(to, self._environ, say))
            try:
                cache = NodeCache(found[0])
                cache.prepare()
                if cache.root != cache.named:
                    node = self._rank.name
                    say(
                        f"{cache.named} belongs to another user; {cache.root} is used on {node}"
                    )
            except OSError as error:
                raise scratch.scratch_trouble(found[0], error, self._environ) from None

        self._rank.together(step)
        token = secrets.token_hex(8)
        self._check_not_shared(NodeCache(found[0]), token)
        if self._settings.share == "auto" and self._settings.mode == "replicate":
            self._neighbours = find_neighbours(self._world, found[0], token)
        return found[0]

    def _check_not_shared(self, cache: NodeCache, token: str) -> None:
        """Two nodes in one folder would wait for each other's locks."""
        self._rank.on_scratch(cache.root, lambda: cache.mark(token))
        tokens = [found.decode() for found in self._world.exchange(token.encode())]

        def look() -> None:
            seen = cache.marked()
            if seen != token and seen in tokens:
                names = sorted((self._names[tokens.index(seen)], self._rank.name))
                raise ScratchError(
                    f"nodes {names[0]} and {names[1]} share the folder {cache.root}",
                    hint="give --to a node's own disk, or a folder with %n in it",
                )

        self._rank.together(look)

    def _check_size(self, manifests: Sequence[Manifest]) -> None:
        found = sum(manifest.size_bytes for manifest in manifests)
        expected = self._settings.expect_bytes
        if expected is not None and found != expected:
            raise SourceError(
                f"the sources hold {found} bytes, not the {expected} that were expected",
                hint="is the data set complete? otherwise correct --expect-size",
            )

    def _check_references(self, manifest: Manifest, given: Path) -> None:
        """A copy that lacks a part of its data is read as zeros."""
        mode, tree = self._settings.mode, manifest.kinds[0] == Kind.FOLDER
        if mode == "stream" or (mode == "shard" and not tree):  # which looks for itself
            return
        turn, turns = self._world.rank, self._world.size

        def step() -> None:
            mine = hdf5_files(manifest, turn=turn, turns=turns)
            check_references(manifest, mine, given=given, parted=mode == "shard")

        self._rank.together(step)

    def _stage(self, cache: NodeCache, manifest: Manifest) -> None:
        """Bring one source to all nodes."""
        share = self._share(manifest)
        manifest = manifest if share is None else share.manifest
        table = PieceTable(manifest)
        structure = () if share is None else share.structure
        partial = PartialCopy(cache, manifest, table, structure=structure)

        def looked(before: Present | None) -> Present | None:
            return find_present(
                self._rank, cache, manifest, table, structure=structure, before=before
            )

        present = looked(None)
        place = None if present is None else present.place
        if not self._all_have(place):
            self._lock(partial)
            try:
                present = looked(present)
                copying = Copying(
                    self._rank, cache, partial, manifest, table, present=present, share=share
                )
                place = copying.run(self._neighbours)
            finally:
                partial.unlock()
        if place is None:
            raise WorldError("a source was staged, but not to this node")
        self._tally.paths.append(str(place))
        self._tally.sources.append(
            StagedSource(
                source=manifest.root,
                name=manifest.name,
                content=place.parent.name,
                size_bytes=manifest.size_bytes,
                entries=len(manifest),
            )
        )

    def _all_have(self, place: Path | None) -> bool:
        mine = b"1" if place is not None else b"0"
        return all(found == b"1" for found in self._world.exchange(mine))

    def _lock(self, partial: PartialCopy) -> None:
        """Take this version's lock on all nodes or on none, so that two jobs cannot wait
        for each other."""
        started = time.monotonic()
        said = False
        while True:
            mine = partial.try_lock()
            free = self._world.exchange(b"1" if mine else b"0")
            if all(found == b"1" for found in free):
                return
            if mine:
                partial.unlock()
            busy = self._names[free.index(b"0")]
            if time.monotonic() - started > _LOCK_WAIT_S:
                raise WorldError(
                    f"another job has been staging the same data on {busy} for too long",
                    hint="end that job, or give --to a folder of this job's own (%j)",
                )
            if self._world.rank == 0 and not said:
                self._progress.say(f"waiting for another job that stages this data on {busy}")
                said = True
            time.sleep(random.uniform(0.1, 0.3))  # noqa: S311
