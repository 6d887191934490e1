"""Rows of a staged HDF5 file as a tf.data.Dataset; imports TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sbtrain_staging.readers.reader import StagedData
from sbtrain_staging.readers.row_batches import open_hdf5, row_batches

if TYPE_CHECKING:
    import numpy
    import tensorflow


def tf_rows(
    data: StagedData,
    names: Sequence[str],
    *,
    rows: int,
    file: str = "",
    seed: int | None = None,
) -> tensorflow.data.Dataset:
    """Batches as row_batches gives them, as tensors, two read ahead.

    Raises what row_batches raises; TensorFlow wraps it while it iterates.
    """
    import tensorflow

    signature: list[Any] = []
    with open_hdf5(data, file) as opened:
        for name in names:
            found = opened[name]
            kind = tensorflow.as_dtype(found.dtype)
            signature.append(tensorflow.TensorSpec((None, *found.shape[1:]), kind))

    def batches() -> Iterator[tuple[numpy.ndarray, ...]]:
        return row_batches(data, names, rows=rows, file=file, seed=seed)

    made = tensorflow.data.Dataset.from_generator(batches, output_signature=tuple(signature))
    return made.prefetch(2)
