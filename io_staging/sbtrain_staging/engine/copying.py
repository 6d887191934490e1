"""Bringing one source to all nodes that lack it, on one rank: the steps, in order.

take up what is there --> deal what is missing --> move --> link --> check --> publish
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from sbtrain_staging.cache.node_cache import NodeCache
from sbtrain_staging.cache.scratch import scratch_trouble
from sbtrain_staging.engine.exchange import ShardMove, release_older, shard_lanes
from sbtrain_staging.engine.move import Move
from sbtrain_staging.engine.neighbours import Neighbours, Shares, digests_of, nobody
from sbtrain_staging.engine.partial import PartialCopy
from sbtrain_staging.engine.pipeline import Engine
from sbtrain_staging.engine.present import Present
from sbtrain_staging.engine.rank import Rank
from sbtrain_staging.engine.schedule import Lane, chunk_size, plan_lanes
from sbtrain_staging.engine.shards import Share
from sbtrain_staging.errors import StagingError, VerificationError, WorldError
from sbtrain_staging.ranks.world import together
from sbtrain_staging.sources.delta import OlderCopy
from sbtrain_staging.sources.manifest import Manifest
from sbtrain_staging.sources.order import arrival_order
from sbtrain_staging.sources.pieces import PieceSet, PieceTable, from_bytes, set_of, to_bytes
from sbtrain_staging.sources.scan import changed_error, first_change
from sbtrain_staging.sources.striping import agreed_readers


class Copying:
    """The copying of one source, or of this node's share of it; the caller holds its lock.

    Args:
        present: the finished copy on this node, where there is one.
        share: the part that is for this node, where it is not all.
    """

    def __init__(
        self,
        rank: Rank,
        cache: NodeCache,
        partial: PartialCopy,
        manifest: Manifest,
        table: PieceTable,
        *,
        present: Present | None,
        share: Share | None,
    ) -> None:
        self._rank = rank
        self._world = rank.world
        self._settings = rank.settings
        self._cache = cache
        self._partial = partial
        self._manifest = manifest
        self._table = table
        self._present = present
        self._place = None if present is None else present.place
        self._share = share
        self._known: dict[int, bytes] = {}

    @property
    def _folder(self) -> Path:
        return self._partial.tree if self._place is None else self._place.parent

    def run(self, neighbours: Neighbours) -> Path:
        """Copy what is missing anywhere; the place of the data on this node.

        Raises:
            StagingError: what went wrong on any rank; the same error on every rank.
        """
        if self._share is not None:
            self._take_up()
            move = self._move_share(self._share)
        else:
            for group in (neighbours, nobody(self._world.size)):
                self._take_up()
                self._fill(group)
                if self._all_whole():
                    break
        self._check_agreed()
        place = self._publish()
        if self._share is not None and self._settings.epoch:
            release_older(self._cache, move, key=self._settings.key)
        return place

    def _take_up(self) -> None:
        """Find what this node has of the source."""

        def step() -> None:
            remains: OlderCopy | None = None
            if self._present is not None:
                copy = self._present.copy
                if self._place is not None:
                    self._partial.discard()
                    self._known = dict(enumerate(copy.digests))
                    return
                with self._cache.locked():
                    self._cache.disown(self._manifest)
                remains = (copy.path.parent, self._manifest, copy.digests)
            self._partial.recover()
            self._partial.begin(remains)
            self._known = dict(self._partial.digests)

        self._rank.on_scratch(self._cache.root, step)

    def _reserve(self, wanted: PieceSet) -> None:
        """Make room for what this node is to bring."""

        def step() -> None:
            if self._place is None:
                self._partial.reserve(wanted, quota_bytes=self._settings.quota_bytes)
                if self._share is not None:
                    self._share.write_structure(self._partial.tree)

        self._rank.on_scratch(self._cache.root, step)

    def _have(self) -> PieceSet:
        return set_of(self._known, size=len(self._table))

    def _move_share(self, share: Share) -> ShardMove:
        table, have = self._table, self._have()
        self._reserve(table.all)
        move = ShardMove(share, table, self._partial, self._cache, place=self._place)
        lanes = shard_lanes(
            self._world,
            move,
            table,
            have=have,
            readers=self._settings.readers,
            seed=self._settings.order_seed,
        )
        self._move(move, lanes, table.bytes_in(table.all & ~have))
        return move

    def _fill(self, neighbours: Neighbours) -> None:
        """Bring this node's share of what is missing, then link to what neighbours brought."""
        table, have = self._table, self._have()
        held = [from_bytes(found) for found in self._world.exchange(to_bytes(have))]
        shares = neighbours.shares(self._manifest, table, held, self._world.rank)
        wanted = shares.wanted[self._world.rank]
        self._reserve(wanted)
        seed = self._settings.order_seed
        order = None if seed is None else arrival_order(self._manifest, table, seed)
        lanes = plan_lanes(
            table,
            wanted=shares.wanted,
            held=held,
            readers=agreed_readers(self._manifest, self._world, asked=self._settings.readers),
            order=order,
        )
        move = Move(
            self._manifest, table, self._partial, folder=self._folder, known=self._known
        )
        self._move(move, lanes, table.bytes_in(wanted & ~have))
        folders = self._world.exchange(str(self._folder).encode())
        self._link(shares, [Path(folder.decode()) for folder in folders])

    def _move(self, move: Move | ShardMove, lanes: Sequence[Lane], missing_bytes: int) -> None:
        missing = [int(said) for said in self._world.exchange(b"%d" % missing_bytes)]
        progress, tally = self._rank.progress, self._rank.tally
        progress.begin(f"staging {move.manifest.name}", missing)
        engine = Engine(
            self._world,
            move.table,
            chunk_bytes=chunk_size(max(missing, default=0), self._world.size),
            open_ends=lambda lane: move.ends(lane, self._world.rank),
            node_names=self._rank.names,
            on_tick=progress.show,
        )
        try:
            engine.run(lanes)
        except OSError as error:
            failure: StagingError = scratch_trouble(move.folder, error, self._rank.environ)
            self._world.fail(failure)
            raise failure from None
        except StagingError as error:
            self._world.fail(error)
            raise
        progress.end(missing)
        tally.source_bytes_read += move.source_bytes_read()
        tally.received_bytes += move.bytes_written()
        self._check_unchanged()
        if self._place is None:
            self._known.update(move.digests())

    def _link(self, shares: Shares, folders: Sequence[Path]) -> None:
        """Link to the files that neighbours brought; every rank must call it.

        Args:
            folders: of every rank, where its files are.
        """
        names: dict[int, list[int]] = {}
        for index, owner in shares.owners.items():
            if self._place is None and not self._has_file(index):
                names.setdefault(owner, []).append(index)

        def step() -> None:
            for owner, indexes in names.items():
                try:
                    digests = digests_of(self._manifest, folders[owner])
                except StagingError:
                    continue  # this node then copies them itself
                added = self._partial.link(indexes, folders[owner], digests)
                self._rank.tally.linked_bytes += self._table.bytes_in(
                    set_of(added, size=len(self._table))
                )
                self._known.update(added)

        self._rank.on_scratch(self._cache.root, step)

    def _has_file(self, index: int) -> bool:
        return all(piece in self._known for piece in self._table.of_file(index))

    def _all_whole(self) -> bool:
        whole = len(self._known) == len(self._table)
        missing = [
            name
            for name, said in zip(
                self._rank.names, self._world.exchange(b"1" if whole else b"0"), strict=True
            )
            if said == b"0"
        ]
        if missing and self._world.rank == 0:
            self._rank.progress.say(f"no links to neighbours' files on {', '.join(missing)}")
        return not missing

    def _check_unchanged(self) -> None:
        """Look once more at the source, each rank at its share."""
        share = range(len(self._manifest))
        if self._settings.mode == "replicate":
            share = share[self._world.rank :: self._world.size]

        def look() -> None:
            changed = first_change(self._manifest, share)
            if changed is not None:
                raise changed_error(self._manifest, changed)

        self._rank.together(look)

    def _check_agreed(self) -> None:
        names = self._rank.names

        def content() -> bytes:
            missing = len(self._table) - len(self._known)
            if missing:
                raise VerificationError(
                    f"{missing} pieces of {self._manifest.root} did not arrive on node "
                    f"{self._rank.name}"
                )
            return self._content(self._known).encode()

        contents = together(self._world, content)
        odd = next((r for r, found in enumerate(contents) if found != contents[0]), None)
        if odd is not None and self._settings.mode == "replicate":
            self._rank.on_scratch(self._cache.root, self._forget)
            raise VerificationError(
                f"nodes {names[0]} and {names[odd]} hold different copies of "
                f"{self._manifest.root}, and neither is damaged",
                hint="stage again: all nodes then read the source anew",
            )

    def _forget(self) -> None:
        self._partial.discard()
        with self._cache.locked():
            self._cache.disown(self._manifest)

    def _content(self, digests: Mapping[int, bytes]) -> str:
        return self._manifest.content_id(self._table.file_digests(digests))

    def _publish(self) -> Path:
        def step() -> None:
            if self._place is None:
                self._partial.finish()
                self._place = self._partial.publish(
                    self._known, key=self._settings.key, until_s=self._rank.until_s()
                )

        self._rank.on_scratch(self._cache.root, step)
        if self._place is None:
            raise WorldError("a source was staged, but not to this node")
        return self._place
