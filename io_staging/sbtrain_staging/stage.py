"""Staging one source after another onto all nodes: the steps, in order, on every rank."""

from __future__ import annotations

import random
import resource
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sbtrain_staging import scratch
from sbtrain_staging.cache import NodeCache
from sbtrain_staging.errors import (
    ScratchError,
    SourceError,
    StagingError,
    VerificationError,
    WorldError,
)
from sbtrain_staging.exchange import ShardMove, release_older, shard_lanes
from sbtrain_staging.manifest import Manifest
from sbtrain_staging.move import Move
from sbtrain_staging.partial import PartialCopy
from sbtrain_staging.pieces import PieceSet, PieceTable, from_bytes, set_of, to_bytes
from sbtrain_staging.pipeline import Engine
from sbtrain_staging.progress import Progress
from sbtrain_staging.reader import arrival_order
from sbtrain_staging.records import read_record
from sbtrain_staging.report import (
    NodeReport,
    StagedSource,
    StagingReport,
    node_from_bytes,
    node_to_bytes,
)
from sbtrain_staging.scan import changed_error, first_change, scan
from sbtrain_staging.schedule import Lane, chunk_size, plan_lanes
from sbtrain_staging.shards import Share, share_of
from sbtrain_staging.striping import agreed_readers
from sbtrain_staging.world import World, node_name, together

DEFAULT_HOLD_S = 24 * 3600.0
_LOCK_WAIT_S = 3600.0


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
        order_seed: files arrive in the order that reader.epoch_order draws from it; None
            is the order of their names.
        mode: "replicate" (all nodes hold all), "shard" (each node holds its part) or
            "stream" (nothing is copied; the report names the source itself).
        epoch: for which parts are dealt; from the second on, older parts are given up.
    """

    to: str
    key: str
    expect_bytes: int | None = None
    quota_bytes: int | None = None
    readers: int = 1
    hold_s: float = DEFAULT_HOLD_S
    order_seed: int | None = None
    mode: str = "replicate"
    epoch: int = 0


@dataclass(slots=True)
class _Tally:
    """What this rank did so far."""

    received_bytes: int = 0
    source_bytes_read: int = 0
    paths: list[str] = field(default_factory=list)
    sources: list[StagedSource] = field(default_factory=list)


class Stager:
    """One rank of a staging run."""

    def __init__(self, world: World, settings: Settings, environ: Mapping[str, str]) -> None:
        self._world = world
        self._settings = settings
        self._environ = environ
        self._tally = _Tally()
        self._names: list[str] = []
        self._shares: dict[str, Share] = {}
        self._progress = Progress(node_names=())

    def run(self, sources: Sequence[Path]) -> StagingReport:
        """Bring all sources to all nodes.

        Raises:
            StagingError: what went wrong on any rank; the same error on every rank.
        """
        started = time.monotonic()
        name = node_name(self._environ)
        self._names = [found.decode() for found in self._world.exchange(name.encode())]
        self._progress = Progress(node_names=self._names)
        stream = self._settings.mode == "stream"
        cache = None if stream else NodeCache(self._prepare_scratch())
        manifests = [scan(source, self._world) for source in sources]
        self._check_size(manifests)
        for manifest in manifests:
            if cache is None:
                self._tally.paths.append(manifest.root)
            else:
                self._stage(cache, self._share(manifest))
        seconds = time.monotonic() - started
        report = NodeReport(
            node=name,
            bytes_received=self._tally.received_bytes,
            source_bytes_read=self._tally.source_bytes_read,
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

    def _share(self, manifest: Manifest) -> Manifest:
        """The part of a source that is for this node."""
        if self._settings.mode != "shard":
            return manifest
        share = share_of(
            manifest, self._world, seed=self._settings.order_seed, epoch=self._settings.epoch
        )
        self._shares[share.manifest.version] = share
        return share.manifest

    def _together(self, step: Callable[[], None]) -> None:
        def nothing() -> bytes:
            step()
            return b""

        together(self._world, nothing)

    def _on_scratch(self, where: Path, step: Callable[[], None]) -> None:
        """Do a step that writes to scratch, on all ranks."""

        def explained() -> None:
            try:
                step()
            except OSError as error:
                raise scratch.scratch_trouble(where, error, self._environ) from None

        self._together(explained)

    def _prepare_scratch(self) -> Path:
        found: list[Path] = []

        def step() -> None:
            found.append(scratch.prepare(self._settings.to, self._environ))
            try:
                NodeCache(found[0]).prepare()
            except OSError as error:
                raise scratch.scratch_trouble(found[0], error, self._environ) from None

        self._together(step)
        self._check_not_shared(NodeCache(found[0]))
        return found[0]

    def _check_not_shared(self, cache: NodeCache) -> None:
        """Two nodes in one folder would wait for each other's locks."""
        token = secrets.token_hex(8)
        self._on_scratch(cache.root, lambda: cache.mark(token))
        tokens = [found.decode() for found in self._world.exchange(token.encode())]

        def look() -> None:
            seen = cache.marked()
            if seen != token and seen in tokens:
                names = sorted((self._names[tokens.index(seen)], node_name(self._environ)))
                raise ScratchError(
                    f"nodes {names[0]} and {names[1]} share the folder {cache.root}",
                    hint="give --to a node's own disk, or a folder with %n in it",
                )

        self._together(look)

    def _check_size(self, manifests: Sequence[Manifest]) -> None:
        found = sum(manifest.size_bytes for manifest in manifests)
        expected = self._settings.expect_bytes
        if expected is not None and found != expected:
            raise SourceError(
                f"the sources hold {found} bytes, not the {expected} that were expected",
                hint="is the data set complete? otherwise correct --expect-size",
            )

    def _stage(self, cache: NodeCache, manifest: Manifest) -> None:
        """Bring one source to all nodes."""
        table = PieceTable(manifest)
        partial = PartialCopy(cache, manifest, table)
        place = self._present(cache, manifest)
        if not self._all_have(place):
            self._lock(partial)
            try:
                place = place or self._present_here(cache, manifest)
                place = self._copy(cache, manifest, table, partial, place)
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

    def _until_s(self) -> float:
        return time.time() + self._settings.hold_s

    def _present_here(self, cache: NodeCache, manifest: Manifest) -> Path | None:
        with cache.locked():
            cache.sweep(keep=manifest.version)
            copy = cache.find(manifest)
            if copy is None:
                return None
            cache.drop_partial(manifest.version)
            cache.pin(copy.header.content, self._settings.key, self._until_s())
            return copy.path

    def _present(self, cache: NodeCache, manifest: Manifest) -> Path | None:
        found: list[Path | None] = []
        self._on_scratch(cache.root, lambda: found.append(self._present_here(cache, manifest)))
        return found[0]

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

    def _copy(
        self,
        cache: NodeCache,
        manifest: Manifest,
        table: PieceTable,
        partial: PartialCopy,
        place: Path | None,
    ) -> Path:
        """Copy what is missing anywhere; the place of the data on this node."""
        known: dict[int, bytes] = {}
        self._on_scratch(
            cache.root, lambda: self._take_up(cache, manifest, table, partial, place, known)
        )
        have = table.all if place is not None else set_of(known, size=len(table))
        folder = partial.tree if place is None else place.parent
        share = self._shares.get(manifest.version)
        move: Move | ShardMove
        if share is None:
            lanes = self._lanes(manifest, table, have)
            move = Move(manifest, table, partial, folder=folder, known=known)
        else:
            move = ShardMove(share, table, partial, cache, place=place)
            settings = self._settings
            seed, readers = settings.order_seed, settings.readers
            lanes = shard_lanes(self._world, move, table, have=have, readers=readers, seed=seed)
        self._move(move, lanes, table.bytes_in(table.all & ~have))
        self._check_unchanged(manifest)
        if place is None:
            known.update(move.digests())
        self._check_agreed(manifest, table, known)
        published: list[Path] = [] if place is None else [place]

        def publish() -> None:
            if place is None:
                partial.finish()
                published.append(
                    partial.publish(known, key=self._settings.key, until_s=self._until_s())
                )

        self._on_scratch(cache.root, publish)
        if isinstance(move, ShardMove) and self._settings.epoch:
            release_older(cache, move, key=self._settings.key)
        return published[0]

    def _take_up(
        self,
        cache: NodeCache,
        manifest: Manifest,
        table: PieceTable,
        partial: PartialCopy,
        place: Path | None,
        known: dict[int, bytes],
    ) -> None:
        """Find what this node has of a source, and make room for the rest."""
        if place is not None:
            partial.discard()
            _, _, digests = read_record(cache.record_of(manifest))
            known.update(enumerate(digests))
            return
        partial.recover()
        partial.begin()
        partial.reserve(quota_bytes=self._settings.quota_bytes)
        known.update(partial.digests)
        if share := self._shares.get(manifest.version):
            share.write_structure(partial.tree)

    def _lanes(self, manifest: Manifest, table: PieceTable, have: PieceSet) -> list[Lane]:
        """Where each piece comes from: known to all ranks, or this rank's own affair."""
        seed = self._settings.order_seed
        order = None if seed is None else arrival_order(manifest, table, seed)
        every = table.all
        readers = agreed_readers(manifest, self._world, asked=self._settings.readers)
        held = [from_bytes(found) for found in self._world.exchange(to_bytes(have))]
        wanted = [every] * self._world.size
        return plan_lanes(table, wanted=wanted, held=held, readers=readers, order=order)

    def _move(self, move: Move | ShardMove, lanes: Sequence[Lane], missing_bytes: int) -> None:
        missing = [int(said) for said in self._world.exchange(b"%d" % missing_bytes)]
        self._progress.begin(f"staging {move.manifest.name}", missing)
        engine = Engine(
            self._world,
            move.table,
            chunk_bytes=chunk_size(max(missing, default=0), self._world.size),
            open_ends=lambda lane: move.ends(lane, self._world.rank),
            node_names=self._names,
            on_tick=self._progress.show,
        )
        try:
            engine.run(lanes)
        except OSError as error:
            failure: StagingError = scratch.scratch_trouble(move.folder, error, self._environ)
            self._world.fail(failure)
            raise failure from None
        except StagingError as error:
            self._world.fail(error)
            raise
        self._tally.source_bytes_read += move.source_bytes_read()
        self._tally.received_bytes += move.bytes_written()

    def _check_unchanged(self, manifest: Manifest) -> None:
        """Look once more at the source, each rank at its share."""
        share = range(len(manifest))
        if self._settings.mode == "replicate":
            share = share[self._world.rank :: self._world.size]

        def look() -> None:
            changed = first_change(manifest, share)
            if changed is not None:
                raise changed_error(manifest, changed)

        self._together(look)

    def _check_agreed(
        self, manifest: Manifest, table: PieceTable, digests: Mapping[int, bytes]
    ) -> None:
        def content() -> bytes:
            if len(digests) != len(table):
                raise VerificationError(
                    f"{len(table) - len(digests)} pieces of {manifest.root} did not arrive on "
                    f"node {node_name(self._environ)}"
                )
            return manifest.content_id(table.file_digests(digests)).encode()

        contents = together(self._world, content)
        odd = next((r for r, found in enumerate(contents) if found != contents[0]), None)
        if odd is not None and self._settings.mode == "replicate":
            raise VerificationError(
                f"nodes {self._names[0]} and {self._names[odd]} hold different copies of "
                f"{manifest.root}",
                hint="remove both with `python -m sbtrain_staging clean`, then stage again",
            )
