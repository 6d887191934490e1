"""PyTorch's steps: one ends when an optimiser has stepped; of several optimisers, the first.

Gradients that are accumulated, and steps that a GradScaler leaves out, belong to the step that
follows. An optimiser that is compiled with the model is not seen, nor one that a CUDA graph
replays: their steps have no times.
"""

from __future__ import annotations

import contextlib
import functools
import time
from types import ModuleType
from typing import Any

import torch

from sbtrain_jobs.hooks.step_times import Leader, Trained, step_times

OLDEST = (2, 3)  # whose hook can tell that it is being compiled


def slip_into(module: ModuleType) -> None:
    """Count the steps of optimisers, or the batches that loaders give."""
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < OLDEST:
        return
    if module.__name__ == "torch.optim.optimizer":
        module.register_optimizer_step_pre_hook(_steps)
        module.register_optimizer_step_post_hook(_stepped)
    else:
        _count_batches(module._BaseDataLoaderIter)


_under_way: set[int] = set()  # optimisers that began a step, and have not been counted


def _steps(optimizer: Any, args: Any, kwargs: Any) -> None:
    if not torch.compiler.is_compiling():
        _under_way.add(id(optimizer))


def _stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
    """Costs a step some microseconds. A step that calls that of the class above it, as
    Horovod's does, is told of twice, and is one."""
    if torch.compiler.is_compiling() or id(optimizer) not in _under_way:
        return
    _under_way.discard(id(optimizer))
    try:
        if _leader.leads(id(optimizer)):
            times = step_times()
            times.samples, input_s = _batches.of_step()
            times.end("torch", _described, optimizer, input_s=input_s)
    except Exception:
        return


class _Batches:
    """What loaders gave to the step that runs. Loaders are told apart by their data."""

    def __init__(self) -> None:
        self._given = 0
        self._size = 0
        self._waited_s = 0.0
        self._given_before = 0
        self._samples = 0
        self._drawn: set[int] = set()
        self._of_training: set[int] = set()  # what the step before drew from
        self._away = False  # another loader gives batches: an evaluation runs

    def asked(self, data: int) -> None:
        """A loader is about to give. One that training came back to begins the step."""
        if data in self._of_training:
            if self._away:
                self._forget()
                step_times().begin()
        elif self._of_training:
            self._away = True
        self._drawn.add(data)

    def gave(self, size: int, waited_s: float) -> None:
        self._given += 1
        self._size = size
        self._waited_s += waited_s

    def of_step(self) -> tuple[int, float]:
        """Of the step that has ended: samples, known where two steps got as many batches, and
        seconds that were waited for them."""
        if self._given == self._given_before:
            self._samples = self._given * self._size
        self._given_before = self._given
        waited_s = self._waited_s
        self._of_training = self._drawn or self._of_training
        self._forget()
        return self._samples, waited_s

    def _forget(self) -> None:
        self._drawn = set()
        self._away = False
        self._given = 0
        self._waited_s = 0.0


_leader = Leader()
_batches = _Batches()


def _count_batches(loader_iterator: Any) -> None:
    original = loader_iterator.__next__

    @functools.wraps(original)
    def counted(self: Any) -> Any:
        with contextlib.suppress(Exception):
            _batches.asked(id(self._dataset))
        asked_s = time.perf_counter()
        batch = original(self)
        with contextlib.suppress(Exception):
            sampler = getattr(self, "_index_sampler", None)
            size = getattr(sampler, "batch_size", None) or 0
            _batches.gave(size, time.perf_counter() - asked_s)
        return batch

    loader_iterator.__next__ = counted


def _described(optimizer: Any) -> Trained:
    """Parameters and tensors that it changes; of those that are sharded, this rank's."""
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    return Trained(sum(p.numel() for p in trained), len(trained))
