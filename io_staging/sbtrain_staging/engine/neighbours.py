"""Nodes that share one host's filesystem: each copies a share, and links the others' files.

Several slurmd on one host, or containers over one volume: sending data between them would
copy it inside one filesystem. Finished files are never changed, so that a hard link is as
good as a copy, and takes neither time nor room. That two nodes share a filesystem is proved
by doing, not concluded from names; whatever does not work leaves the ordinary way.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sbtrain_staging.cache.journal import read_journal
from sbtrain_staging.cache.node_cache import NodeCache
from sbtrain_staging.ranks.world import World
from sbtrain_staging.sources.manifest import Kind, Manifest
from sbtrain_staging.sources.pieces import PieceSet, PieceTable, set_of, to_bytes
from sbtrain_staging.sources.records import read_record

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# Files are dealt to neighbours in turns of this size, so that their order is kept.
_TURN_BYTES = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Who copies what of one source.

    Attributes:
        wanted: the pieces that each rank is to bring to its scratch itself.
        owners: the neighbour that brings a file, by the file's index; without the files
            that this rank brings.
    """

    wanted: tuple[PieceSet, ...]
    owners: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Who can link to whose files: of every rank, the first rank on its filesystem."""

    leaders: tuple[int, ...]

    def group(self, rank: int) -> tuple[int, ...]:
        leader = self.leaders[rank]
        return tuple(r for r, found in enumerate(self.leaders) if found == leader)

    def shares(
        self, manifest: Manifest, table: PieceTable, held: Sequence[PieceSet], rank: int
    ) -> Shares:
        """Deal the files of a source; the same on all ranks.

        Args:
            held: the pieces that each rank has.
        """
        wanted = [table.all] * len(self.leaders)
        owners: dict[int, int] = {}
        for leader in sorted(set(self.leaders)):
            group = self.group(leader)
            if len(group) > 1:
                dealt = _deal(manifest, table, {member: held[member] for member in group})
                for member in group:
                    own = (index for index, owner in dealt.items() if owner == member)
                    numbers = (piece for index in own for piece in table.of_file(index))
                    wanted[member] = set_of(numbers, size=len(table))
                if rank in group:
                    owners = {index: o for index, o in dealt.items() if o != rank}
        return Shares(wanted=tuple(wanted), owners=owners)


def _deal(
    manifest: Manifest, table: PieceTable, held: Mapping[int, PieceSet]
) -> dict[int, int]:
    """The owner of every file with data: a rank that has the most of it, else in turns."""
    members = sorted(held)
    bits = {member: to_bytes(pieces) for member, pieces in held.items() if pieces}
    owners: dict[int, int] = {}
    passed = 0
    for index in manifest.of_kind(Kind.FILE):
        pieces = table.of_file(index)
        if not pieces:
            continue
        counts = {member: _count(found, pieces) for member, found in bits.items()}
        most = max(counts, key=counts.__getitem__, default=None)
        if most is not None and counts[most]:
            owners[index] = most
        else:
            owners[index] = members[passed // _TURN_BYTES % len(members)]
            passed += manifest.sizes_bytes[index]
    return owners


def _count(bits: bytes, pieces: range) -> int:
    return sum(
        bits[piece >> 3] >> (piece & 7) & 1 for piece in pieces if piece >> 3 < len(bits)
    )


def nobody(size: int) -> Neighbours:
    """All ranks for themselves."""
    return Neighbours(tuple(range(size)))


def find_neighbours(world: World, scratch: Path, token: str) -> Neighbours:
    """Find the ranks that can link to each other; every rank must call it.

    Args:
        scratch: the scratch folder of this rank.
        token: the word that this rank left in its cache.
    """
    mine = {"scratch": str(scratch), "token": token, "filesystem": _filesystem(scratch)}
    facts = [json.loads(line) for line in world.exchange(json.dumps(mine).encode())]
    first = next(r for r, fact in enumerate(facts) if fact["filesystem"] == mine["filesystem"])
    leader = world.rank
    if first != world.rank and _can_link(facts[first], scratch):
        leader = first
    return Neighbours(tuple(int(said) for said in world.exchange(b"%d" % leader)))


def _filesystem(folder: Path) -> str:
    """The same for two folders only if one kernel has them on one filesystem."""
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        boot = secrets.token_hex(16)
    return f"{boot} {folder.stat().st_dev}"


def _can_link(fact: Mapping[str, str], scratch: Path) -> bool:
    theirs = NodeCache(Path(fact["scratch"]))
    try:
        return theirs.marked() == fact["token"] and NodeCache(scratch).can_link_to(theirs)
    except OSError:
        return False


def digests_of(manifest: Manifest, folder: Path) -> dict[int, bytes]:
    """The digests of the pieces that a neighbour has, as its journal or record says.

    Args:
        folder: where its files are: of a finished copy, or the tree of an unfinished one.

    Raises:
        StagingError: it has neither.
    """
    journal = folder.with_name("journal")
    if folder.parent.name == manifest.version:
        return dict(read_journal(journal))
    record = folder.parents[1] / "records" / manifest.version
    return dict(enumerate(read_record(record)[2]))
