"""How Lustre stripes a file: read from the extended attribute `lustre.lov`.

The bytes are struct lov_user_md_v1 / _v3 and struct lov_comp_md_v1 of Lustre's public
header lustre_user.h (little-endian as kept on disk), which llapi_layout(3) describes too:

    v1    u32 magic 0x0BD10BD0; u32 pattern; u64 object id; u64 group; u32 stripe size;
          u16 stripe count; u16 generation; then 24 bytes for each object
    v3    as v1 with magic 0x0BD30BD0; a pool's name of 16 bytes before the objects
    comp  u32 magic 0x0BD60BD0; u32 size; u32 generation; u16 flags; u16 entries;
          u16 mirrors; 14 bytes padding; then 48 bytes for each entry: u32 id; u32 flags;
          u64 start; u64 end; u32 offset and u32 size of a v1 or v3 blob; padding

Checked against byte-exact layouts alone: no Lustre was at hand.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

from sbtrain_perf.values import dataclass
from sbtrain_staging.ranks.world import World, together
from sbtrain_staging.sources.manifest import Kind, Manifest

ATTRIBUTE = "lustre.lov"
BLOCK_BYTES = 4 << 20
_BLOCK_BYTES_LEAST = 1 << 20
_BLOCK_BYTES_MOST = 16 << 20
_V1, _V3, _COMPOSITE = 0x0BD10BD0, 0x0BD30BD0, 0x0BD60BD0
_PLAIN = struct.Struct("<IIQQIHH")
_COMPOSITE_HEAD = struct.Struct("<IIIHHH14x")
_ENTRY = struct.Struct("<IIQQII16x")
_INITIALISED = 0x10  # LCME_FL_INIT
_ALL_TARGETS = 0xFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Striping:
    """Attributes:
    stripe_bytes: what lies on one object before the next one's turn.
    stripe_count: objects that the file is spread over.
    """

    stripe_bytes: int
    stripe_count: int


def striping_of(path: Path | str | bytes) -> Striping | None:
    """How a file is striped; None where it is not on Lustre, or in a form unknown here."""
    try:
        packed = os.getxattr(path, ATTRIBUTE)
    except OSError:
        return None
    return parse_layout(packed)


def parse_layout(packed: bytes) -> Striping | None:
    """The widest striping among the parts of a layout that hold data; None for bytes that
    are no layout."""
    try:
        magic = struct.unpack_from("<I", packed)[0]
        if magic in (_V1, _V3):
            return _plain(packed)
        if magic != _COMPOSITE:
            return None
        *_, entries, _ = _COMPOSITE_HEAD.unpack_from(packed)
        found = []
        for number in range(entries):
            at = _COMPOSITE_HEAD.size + number * _ENTRY.size
            _, flags, _, _, offset, size = _ENTRY.unpack_from(packed, at)
            part = _plain(packed[offset : offset + size]) if flags & _INITIALISED else None
            found += [part] if part is not None else []
    except struct.error:
        return None
    return max(found, key=lambda part: part.stripe_count, default=None)


def _plain(packed: bytes) -> Striping | None:
    magic, _, _, _, stripe_bytes, stripe_count, _ = _PLAIN.unpack_from(packed)
    known = magic in (_V1, _V3) and stripe_bytes > 0
    if not known or stripe_count in (0, _ALL_TARGETS):
        return None
    return Striping(stripe_bytes=stripe_bytes, stripe_count=stripe_count)


def readers_of(striping: Striping | None, *, nodes: int, asked: int) -> int:
    """How many nodes read a source at once: as asked, or one for each stripe object."""
    wide = 1 if striping is None else striping.stripe_count
    return max(asked, min(wide, nodes))


def agreed_readers(manifest: Manifest, world: World, *, asked: int) -> int:
    """How many nodes read a source, by the stripes of its largest file; all ranks must call
    it and get what rank 0 finds."""

    def look() -> bytes:
        largest = max(
            manifest.of_kind(Kind.FILE), key=manifest.sizes_bytes.__getitem__, default=None
        )
        found = None
        if world.rank == 0 and largest is not None:
            found = striping_of(manifest.source_path(largest))
        return b"%d" % readers_of(found, nodes=world.size, asked=asked)

    return int(together(world, look)[0])


def block_bytes(striping: Striping | None) -> int:
    """Bytes of a large read that begins and ends at stripe borders."""
    if striping is None:
        return BLOCK_BYTES
    size = striping.stripe_bytes
    while size < _BLOCK_BYTES_LEAST:
        size *= 2
    return size if size <= _BLOCK_BYTES_MOST else BLOCK_BYTES
