"""Which modules of frameworks are acted on as soon as a program has imported them.

Nothing is imported here for the program's sake, and what goes wrong stays here: the program
runs as it would without.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

WORLDS = frozenset(
    (
        "torch.distributed.distributed_c10d",
        "accelerate.state",
        "jax.distributed",
        "horovod.common.basics",
        "mpi4py.MPI",
        "tensorflow.python.distribute.collective_all_reduce_strategy",
        "tensorflow.python.distribute.parameter_server_strategy_v2",
        "tensorflow.python.training.server_lib",
    )
)
STEPS_OF_TORCH = frozenset(("torch.optim.optimizer", "torch.utils.data.dataloader"))
STEPS_OF_KERAS = frozenset(  # 3, and what came before it
    ("keras.src.callbacks.callback_list", "keras.src.callbacks", "tf_keras.src.callbacks")
)
STEPS_OF_TENSORFLOW = frozenset(
    (
        "tensorflow.python.eager.backprop",
        "tensorflow.python.eager.polymorphic_function.polymorphic_function",
        "tensorflow.python.distribute.coordinator.cluster_coordinator",
    )
)
STEPS_OF_JAX = frozenset(("jax", "jax._src.interpreters.ad"))
SAVES = frozenset(
    (
        "torch.serialization",
        "torch.distributed.checkpoint.state_dict_saver",
        "lightning.fabric.utilities.cloud_io",
        "lightning_fabric.utilities.cloud_io",
        "keras.src.models.model",
        "orbax.checkpoint.checkpoint_manager",
    )
)
STEPS = STEPS_OF_TORCH | STEPS_OF_KERAS | STEPS_OF_TENSORFLOW | STEPS_OF_JAX
WATCHED = WORLDS | STEPS | SAVES

_sought: set[str] = set()  # what is being looked for right now


def find_watched(
    name: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    """The spec of a watched module as the other finders give it, with a loader that says when
    the module is there; None for any other module."""
    if name not in WATCHED or name in _sought:
        return None
    _sought.add(name)
    try:
        finders = [getattr(finder, "find_spec", None) for finder in sys.meta_path]
        specs = (find(name, path, target) for find in finders if find is not None)
        spec: ModuleSpec | None = next(filter(None, specs), None)
    finally:
        _sought.discard(name)
    if spec is not None:
        with contextlib.suppress(Exception):
            _tell_when_loaded(name, spec.loader)
    return spec


def _tell_when_loaded(name: str, loader: Any) -> None:
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del loader.exec_module  # from here on it is as it was
        with contextlib.suppress(Exception):
            _before(name)
        execute(module)
        with contextlib.suppress(Exception):
            _after(name, module)

    loader.exec_module = exec_module


def _before(name: str) -> None:
    if name == "mpi4py.MPI":
        from sbtrain_jobs.hooks import worlds

        worlds.mpi_begins()


def _after(name: str, module: ModuleType) -> None:
    if name in WORLDS:
        from sbtrain_jobs.hooks import worlds

        worlds.slip_into(module)
    elif name in STEPS_OF_TORCH:
        from sbtrain_jobs.hooks import torch_steps

        torch_steps.slip_into(module)
    elif name in STEPS_OF_KERAS:
        from sbtrain_jobs.hooks import keras_steps

        keras_steps.slip_into(module)
    elif name in STEPS_OF_TENSORFLOW:
        from sbtrain_jobs.hooks import tensorflow_steps

        tensorflow_steps.slip_into(module)
    elif name in STEPS_OF_JAX:
        from sbtrain_jobs.hooks import jax_steps

        jax_steps.slip_into(module)
    elif name in SAVES:
        from sbtrain_jobs.hooks import saves

        saves.slip_into(module)
