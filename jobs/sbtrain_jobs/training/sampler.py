"""Which samples a step trains on: a pure function of seed and step, so that a resumed run
goes on in the data exactly where the saved one stopped, on every rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbtrain_perf.errors import RequestError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class BatchSampler:
    """Batches of sample numbers, shuffled anew each epoch, disjoint between shards.

    All shards together walk one endless sequence: a permutation of the samples per epoch,
    one after another. Step s takes places (s-1)*G to s*G-1 of it, G = shards * batch; shard
    r takes the r-th batch of those. So no sample is repeated or left out within an epoch,
    also over a stop and a resume. Integer order depends on numpy's PCG64 and is the same
    on every node.

    Args:
        samples: number of samples in the data set.
        batch: samples per step and shard.
        shard, shards: this reader's number and how many read in step.
        seed: the same on all shards.
    """

    def __init__(self, *, samples: int, batch: int, shard: int, shards: int, seed: int) -> None:
        if samples < 1 or batch < 1 or not 0 <= shard < shards:
            raise RequestError(
                f"cannot draw batches of {batch} for shard {shard} of {shards} "
                f"from {samples} samples",
                hint="the data set and the batch must not be empty",
            )
        self._samples = samples
        self._batch = batch
        self._shard = shard
        self._shards = shards
        self._seed = seed
        self._epochs: dict[int, NDArray[np.int64]] = {}

    def batch(self, step: int) -> NDArray[np.int64]:
        """Sample numbers of step `step` (1, 2, ...); shape (batch,)."""
        import numpy as np

        first = ((step - 1) * self._shards + self._shard) * self._batch
        epoch, place = divmod(first, self._samples)
        parts: list[NDArray[np.int64]] = []
        missing = self._batch
        while missing:
            part = self._order(epoch)[place : place + missing]
            parts.append(part)
            missing -= len(part)
            epoch, place = epoch + 1, 0
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def epoch(self, step: int) -> float:
        """Epochs that are done once step `step` ends."""
        return step * self._shards * self._batch / self._samples

    def _order(self, epoch: int) -> NDArray[np.int64]:
        import numpy as np

        if epoch not in self._epochs:
            for old in [e for e in self._epochs if e < epoch - 1]:
                del self._epochs[old]
            generator = np.random.default_rng([self._seed, epoch])
            self._epochs[epoch] = generator.permutation(self._samples)
        return self._epochs[epoch]
