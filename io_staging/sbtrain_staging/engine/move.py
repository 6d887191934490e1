"""What one rank reads and writes while a source is copied, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sbtrain_staging.engine.disk import CopyReader, SourceReader, TreeReader, TreeWriter
from sbtrain_staging.engine.partial import PartialCopy
from sbtrain_staging.engine.pipeline import LaneEnds
from sbtrain_staging.engine.schedule import Lane
from sbtrain_staging.sources.manifest import Manifest
from sbtrain_staging.sources.pieces import PieceTable


class Moved:
    """What came of the readers and writers of one rank for one source."""

    def __init__(self) -> None:
        self._readers: list[TreeReader] = []
        self._writers: list[TreeWriter] = []

    def source_bytes_read(self) -> int:
        found = (reader for reader in self._readers if isinstance(reader, SourceReader))
        return sum(reader.bytes_read for reader in found)

    def bytes_written(self) -> int:
        return sum(writer.bytes_written for writer in self._writers)

    def digests(self) -> dict[int, bytes]:
        return {piece: d for writer in self._writers for piece, d in writer.digests.items()}


class Move(Moved):
    """The readers and writers of one rank for one source."""

    def __init__(
        self,
        manifest: Manifest,
        table: PieceTable,
        partial: PartialCopy,
        *,
        folder: Path,
        known: Mapping[int, bytes],
    ) -> None:
        super().__init__()
        self.manifest = manifest
        self.table = table
        self.folder = folder
        self._partial = partial
        self._known = dict(known)

    def ends(self, lane: Lane, rank: int) -> LaneEnds:
        reader: TreeReader | None = None
        writer: TreeWriter | None = None
        if lane.chain[0] == rank:
            if lane.from_source:
                reader = SourceReader(self.manifest, self.table)
            else:
                reader = CopyReader(
                    self.manifest, self.table, folder=self.folder, known=self._known
                )
            self._readers.append(reader)
        if lane.chain[0] != rank or lane.from_source:
            writer = self._partial.writer()
            self._writers.append(writer)
        return LaneEnds(reader=reader, writer=writer)
