"""Rows of a staged HDF5 file as a torch IterableDataset; imports PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch.utils.data import IterableDataset, get_worker_info

from sbtrain_staging.readers.reader import open_staged
from sbtrain_staging.readers.row_batches import row_batches


class TorchRows(IterableDataset):  # type: ignore[misc]  # torch is untyped here
    """Batches as row_batches gives them; give the DataLoader batch_size=None.

    Each worker of a DataLoader opens the copy itself and reads its own blocks.

    Args:
        scratch, source, epoch: as for open_staged.
        names, rows, file, seed: as for row_batches.
    """

    def __init__(
        self,
        scratch: Path | str,
        source: Path | str,
        names: Sequence[str],
        *,
        rows: int,
        file: str = "",
        seed: int | None = None,
        epoch: int | None = None,
    ) -> None:
        super().__init__()
        self._place = (Path(scratch), Path(source), epoch)
        self._names = tuple(names)
        self._rows = rows
        self._file = file
        self._seed = seed

    def __iter__(self) -> Iterator[tuple[torch.Tensor, ...]]:
        worker = get_worker_info()
        turn = (0, 1) if worker is None else (worker.id, worker.num_workers)
        scratch, source, epoch = self._place
        data = open_staged(scratch, source, epoch=epoch)
        batches = row_batches(
            data, self._names, rows=self._rows, file=self._file, seed=self._seed, turn=turn
        )
        for batch in batches:
            yield tuple(torch.from_numpy(part) for part in batch)
