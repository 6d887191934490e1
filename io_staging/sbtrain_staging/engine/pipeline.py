"""The copy engine: moves the lanes of a schedule, with bounded memory and without blocking.

On each rank a few threads read, one writes, and the calling thread alone talks to the
other ranks. A chunk lives in one slot from its arrival until it is written here and
handed on; each lane has its own slots, so lanes cannot starve each other.
"""

from __future__ import annotations

import mmap
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

from sbtrain_staging.engine.disk import TreeReader
from sbtrain_staging.engine.schedule import PIECES_PER_CHUNK_MOST, Lane, Segment, chunks
from sbtrain_staging.errors import WorldError
from sbtrain_staging.ranks.world import Nap, Transfer, World
from sbtrain_staging.sources.hashing import DIGEST_BYTES
from sbtrain_staging.sources.pieces import PieceTable

SLOTS_PER_LANE = 8
LANES_AT_ONCE = 4
# A shared filesystem answers several reads in about the time of one.
READS_AT_ONCE = 4
STALL_S = 300.0
_TICK_S = 1.0
_TRAILER_BYTES = DIGEST_BYTES * PIECES_PER_CHUNK_MOST

Chunk = list[Segment]


class ChunkWriter(Protocol):
    """Where the chunks of a lane go on this rank."""

    def write_chunk(
        self, chunk: Chunk, data: memoryview, digests: Sequence[bytes], giver: str
    ) -> None: ...

    def close(self) -> None: ...


class Slot:
    """A page-aligned buffer for one chunk, its data first, then the digests."""

    __slots__ = ("memory", "users", "view")

    def __init__(self, chunk_bytes: int) -> None:
        self.memory = mmap.mmap(-1, chunk_bytes + _TRAILER_BYTES)
        self.view = memoryview(self.memory)
        self.users = 0


@dataclass(slots=True)
class _Held:
    """A chunk in its slot."""

    slot: Slot
    chunk: Chunk
    data_bytes: int
    message_bytes: int

    def digests(self) -> list[bytes]:
        trailer = self.slot.view[self.data_bytes : self.message_bytes]
        return [
            bytes(trailer[at : at + DIGEST_BYTES])
            for at in range(0, len(trailer), DIGEST_BYTES)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEnds:
    """What a rank does for a lane: where it reads, and where it writes."""

    reader: TreeReader | None
    writer: ChunkWriter | None


class Engine:
    """Moves lanes on one rank.

    Args:
        open_ends: what this rank reads and writes for a lane, called when it starts.
        node_names: of all ranks, for messages.
        on_tick: called about once a second with the bytes that all ranks have so far.
    """

    def __init__(
        self,
        world: World,
        table: PieceTable,
        *,
        chunk_bytes: int,
        open_ends: Callable[[Lane], LaneEnds],
        node_names: Sequence[str],
        on_tick: Callable[[Sequence[int]], None],
        stall_s: float = STALL_S,
    ) -> None:
        self.world = world
        self.table = table
        self.chunk_bytes = chunk_bytes
        self.node_names = node_names
        self.moved_bytes = 0
        self._open_ends = open_ends
        self._on_tick = on_tick
        self._stall_s = stall_s
        self._spare: list[list[Slot]] = []
        self.reading = ThreadPoolExecutor(READS_AT_ONCE, "read")
        self.writing = ThreadPoolExecutor(1, "write")

    def run(self, lanes: Sequence[Lane]) -> None:
        """Move all lanes in which this rank takes part; returns when its part is done.

        Raises:
            StagingError: what failed here or on another rank.
            OSError: what this node's scratch said.
        """
        waiting = deque(lane for lane in lanes if self.world.rank in lane.chain)
        active: list[LaneRun] = []
        nap = Nap()
        moved_at = ticked_at = time.monotonic()
        try:
            while waiting or active:
                while waiting and len(active) < LANES_AT_ONCE:
                    active.append(self._start(waiting.popleft()))
                if sum(run.step() for run in active):
                    nap.reset()
                    moved_at = time.monotonic()
                    for run in [run for run in active if run.is_done()]:
                        active.remove(run)
                        self._end(run)
                else:
                    self._check_stall(active, moved_at)
                    nap.take()
                self.world.poll()
                if time.monotonic() - ticked_at > _TICK_S:
                    ticked_at = time.monotonic()
                    self.tick()
        finally:
            self.reading.shutdown(cancel_futures=True)
            self.writing.shutdown(cancel_futures=True)
        self.tick()

    def tick(self) -> None:
        self.world.tell(self.moved_bytes)
        if self.world.rank == 0:
            self._on_tick(self.world.told())

    def _start(self, lane: Lane) -> LaneRun:
        slots = self._spare.pop() if self._spare else None
        if slots is None:
            slots = [Slot(self.chunk_bytes) for _ in range(SLOTS_PER_LANE)]
        return LaneRun(self, lane, self._open_ends(lane), slots)

    def _end(self, run: LaneRun) -> None:
        if run.ends.reader is not None:
            run.ends.reader.close()
        if run.ends.writer is not None:
            run.ends.writer.close()
        self._spare.append(run.slots)

    def _check_stall(self, active: Sequence[LaneRun], moved_at: float) -> None:
        waited_s = time.monotonic() - moved_at
        if waited_s > self._stall_s:
            raise WorldError(
                f"nothing moved on node {self.node_names[self.world.rank]} for "
                f"{waited_s:.0f} s: it waits for {active[0].waits_for()}",
                hint="look at that node, its network and its disk; then stage again",
            )


class LaneRun:
    """One lane on one rank: take chunks in, write them, hand them on, in order."""

    def __init__(self, engine: Engine, lane: Lane, ends: LaneEnds, slots: list[Slot]) -> None:
        self.ends = ends
        self.slots = slots
        self._engine = engine
        self._tag = lane.number
        place = lane.chain.index(engine.world.rank)
        self._giver = lane.chain[place - 1] if place else None
        self._taker = lane.chain[place + 1] if place + 1 < len(lane.chain) else None
        self._chunks = chunks(lane, engine.table, engine.chunk_bytes)
        self._free = deque(slots)
        self._exhausted = False
        self._reading: deque[tuple[_Held, Future[None]]] = deque()
        self._receiving: deque[tuple[_Held, Transfer]] = deque()
        self._sending: deque[tuple[_Held, Transfer]] = deque()
        self._writing: deque[tuple[_Held, Future[None]]] = deque()

    def is_done(self) -> bool:
        return self._exhausted and len(self._free) == len(self.slots)

    def waits_for(self) -> str:
        names = self._engine.node_names
        if self._writing:
            return "its own scratch"
        if self._receiving and self._giver is not None:
            return f"node {names[self._giver]}"
        if self._sending and self._taker is not None:
            return f"node {names[self._taker]}"
        return "the source"

    def step(self) -> bool:
        """Do what can be done now; whether that was anything."""
        moved = self._take_in()
        moved |= self._arrivals()
        while self._sending and self._sending[0][1].finished() is not None:
            self._release(self._sending.popleft()[0])
            moved = True
        while self._writing and self._writing[0][1].done():
            held, future = self._writing.popleft()
            future.result()
            self._engine.moved_bytes += held.data_bytes
            self._release(held)
            moved = True
        return moved

    def _take_in(self) -> bool:
        """Ask for chunks into all free slots."""
        moved = False
        while self._free and not self._exhausted:
            chunk = next(self._chunks, None)
            moved = True
            if chunk is None:
                self._exhausted = True
                break
            data_bytes = sum(segment.length for segment in chunk)
            ended = sum(segment.ends for segment in chunk)
            message_bytes = data_bytes + DIGEST_BYTES * ended
            held = _Held(self._free.popleft(), chunk, data_bytes, message_bytes)
            self._ask(held)
        return moved

    def _ask(self, held: _Held) -> None:
        if self._giver is None:
            self._reading.append((held, self._engine.reading.submit(self._read, held)))
        else:
            into = held.slot.view[: held.message_bytes]
            transfer = self._engine.world.receive(into, source=self._giver, tag=self._tag)
            self._receiving.append((held, transfer))

    def _read(self, held: _Held) -> None:
        if self.ends.reader is None:
            raise WorldError("the first rank of a lane has nothing to read from")
        self.ends.reader.read_chunk(held.chunk, held.slot.view[: held.data_bytes])

    def _hash(self, held: _Held) -> None:
        """Put the digests of what was read behind it."""
        if self.ends.reader is not None:
            view = held.slot.view
            digests = self.ends.reader.hash_chunk(held.chunk, view[: held.data_bytes])
            view[held.data_bytes : held.message_bytes] = b"".join(digests)

    def _arrivals(self) -> bool:
        moved = False
        while self._reading and self._reading[0][1].done():
            held, future = self._reading.popleft()
            future.result()
            self._hash(held)
            self._arrived(held)
            moved = True
        while self._receiving:
            count = self._receiving[0][1].finished()
            if count is None:
                break
            held = self._receiving.popleft()[0]
            if count != held.message_bytes:
                raise WorldError(f"a message of {count} bytes, not {held.message_bytes}, came")
            self._arrived(held)
            moved = True
        return moved

    def _arrived(self, held: _Held) -> None:
        held.slot.users = 0
        if self._taker is not None:
            held.slot.users += 1
            data = held.slot.view[: held.message_bytes]
            sent = self._engine.world.send(data, to=self._taker, tag=self._tag)
            self._sending.append((held, sent))
        if self.ends.writer is not None:
            held.slot.users += 1
            self._writing.append((held, self._engine.writing.submit(self._write, held)))
        if not held.slot.users:
            self._free.append(held.slot)

    def _write(self, held: _Held) -> None:
        if self.ends.writer is None:
            return
        giver = "" if self._giver is None else self._engine.node_names[self._giver]
        data = held.slot.view[: held.data_bytes]
        self.ends.writer.write_chunk(held.chunk, data, held.digests(), giver)

    def _release(self, held: _Held) -> None:
        held.slot.users -= 1
        if not held.slot.users:
            self._free.append(held.slot)
