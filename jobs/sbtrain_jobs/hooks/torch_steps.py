"""PyTorch's steps: one ends when an optimiser has stepped; of several optimisers, the first.

Gradients that are accumulated, and steps that a GradScaler leaves out, belong to the step that
follows. An optimiser that is compiled with the model is not seen, nor one that a CUDA graph
replays: their steps have no times.
"""

from __future__ import annotations

import functools
import weakref
from types import ModuleType
from typing import Any

import torch

from sbtrain_jobs.hooks.step_times import step_times

OLDEST = (2, 3)  # whose hook can tell that it is being compiled
OTHERS_IN_A_ROW = 50  # steps of other optimisers after which the first one is no more in use


def slip_into(module: ModuleType) -> None:
    """Count the steps of optimisers, or the batches that loaders give."""
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST:
        return
    if module.__name__ == "torch.optim.optimizer":
        module.register_optimizer_step_post_hook(_stepped)
    else:
        _count_batches(module._BaseDataLoaderIter)


def _stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Costs a step some microseconds."""
    if torch.compiler.is_compiling():
        return
    try:
        if _leader.leads(optimizer):
            times = step_times()
            times.samples = _batches.of_step()
            times.end("torch", _described, optimizer)
    except Exception:
        return


class _Leader:
    """The optimiser whose steps count. It is not kept alive."""

    def __init__(self) -> None:
        self._first: weakref.ref[Any] | None = None
        self._others = 0

    def leads(self, optimizer: Any) -> bool:
        first = None if self._first is None else self._first()
        if optimizer is first:
            self._others = 0
            return True
        self._others += 1
        if first is not None and self._others < OTHERS_IN_A_ROW:
            return False
        self._first, self._others = weakref.ref(optimizer), 0
        return True


class _Batches:
    """What loaders gave: the samples of a step are those of two steps that got as many."""

    def __init__(self) -> None:
        self.given = 0
        self.size = 0
        self._before = 0
        self._samples = 0

    def of_step(self) -> int:
        """Samples of the step that has ended, as far as is known."""
        if self.given == self._before:
            self._samples = self.given * self.size
        self._before, self.given = self.given, 0
        return self._samples


_leader = _Leader()
_batches = _Batches()


def _count_batches(loader_iterator: Any) -> None:
    original = loader_iterator.__next__

    @functools.wraps(original)
    def counted(self: Any) -> Any:
        batch = original(self)
        _batches.given += 1
        sampler = getattr(self, "_index_sampler", None)
        _batches.size = getattr(sampler, "batch_size", None) or 0
        return batch

    loader_iterator.__next__ = counted


def _described(optimizer: Any) -> tuple[int, int]:
    """Parameters and tensors that it changes; of those that are sharded, this rank's."""
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    return sum(p.numel() for p in trained), len(trained)
