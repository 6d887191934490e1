"""What forms the ranks' world in each framework, and how it is told of: that a rank waits for
the others, and, once it is there, which of how many ranks it is."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from sbtrain_jobs.hooks.witness import witness
from sbtrain_jobs.wire.messages import Formed, Forming

TORCH = "torch.distributed"
ACCELERATE = "Accelerate"
JAX = "jax.distributed"
HOROVOD = "Horovod"
MPI = "MPI"
MIRRORED = "MultiWorkerMirroredStrategy"
SERVERS = "ParameterServerStrategy"
SERVER = "tf.distribute.Server"  # a worker or parameter server that is ready to be used

Place = Callable[..., "tuple[int, int]"]  # after it has formed: which rank, of how many
Claim = Callable[..., "dict[str, Any]"]  # before: what the rank takes itself for, of Forming


def slip_into(module: ModuleType) -> None:
    """Wrap what forms a world in a module that has just been imported."""
    if module.__name__ == "torch.distributed.distributed_c10d":
        place = functools.partial(_torch_place, module)
        _tell_of(module, "init_process_group", where=TORCH, place=place, claim=_torch_claim)
    elif module.__name__ == "accelerate.state":
        _tell_of_state(module.AcceleratorState)
    elif module.__name__ == "jax.distributed":
        _tell_of(module, "initialize", where=JAX, place=_jax_place, claim=_jax_claim)
    elif module.__name__ == "horovod.common.basics":
        basics = module.HorovodBasics
        _tell_of(basics, "init", where=HOROVOD, place=_horovod_place)
    elif module.__name__ == "mpi4py.MPI":
        _mpi_formed(module)
    elif hasattr(module, "CollectiveAllReduceStrategy"):
        strategy = module.CollectiveAllReduceStrategy
        _tell_of(strategy, "__init__", where=MIRRORED, place=_mirrored_place)
    elif hasattr(module, "Server"):
        _tell_of(module.Server, "__init__", where=SERVER, place=lambda *_, **__: (-1, 0))
    else:
        strategy = module.ParameterServerStrategyV2
        _tell_of(strategy, "__init__", where=SERVERS, place=_servers_place)


def _tell_of(
    owner: Any, name: str, *, where: str, place: Place, claim: Claim | None = None
) -> None:
    """Have calls of owner.name told of. Place and claim take the arguments of the call."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def told_of(*args: Any, **named: Any) -> Any:
        claimed: dict[str, Any] = {}
        with contextlib.suppress(Exception):
            if claim is not None:
                claimed = claim(inspect.signature(original), args, named)
        _say_forming(where, **claimed)
        result = original(*args, **named)
        with contextlib.suppress(Exception):
            at, size = place(*args, **named)
            _say_formed(where, at, size)
        return result

    setattr(owner, name, told_of)


def _say_forming(where: str, **claimed: Any) -> None:
    with contextlib.suppress(Exception):
        own = witness()
        own.say(Forming(rank=own.rank, where=where, **claimed))


def _say_formed(where: str, place: int, size: int) -> None:
    own = witness()
    own.say(Formed(rank=own.rank, where=where, place=place, size=size))
    own.tell_of_end()


# -- PyTorch -----------------------------------------------------------------------------


def _torch_claim(
    signature: inspect.Signature, args: tuple[Any, ...], named: Mapping[str, Any]
) -> dict[str, Any]:
    """By the arguments, and where they say nothing by the variables of env://."""
    given = signature.bind(*args, **named).arguments
    if given.get("store") is not None:
        return {}
    method = given.get("init_method") or "env://"
    address = method.partition("://")[2].partition("?")[0]
    if method.startswith("env://"):
        address = f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"
    return {
        "place": _first_number(given.get("rank"), os.environ.get("RANK"), missing=-1),
        "size": _first_number(given.get("world_size"), os.environ.get("WORLD_SIZE"), missing=0),
        "address": address,
    }


def _torch_place(module: ModuleType, *_: Any, **__: Any) -> tuple[int, int]:
    return module.get_rank(), module.get_world_size()


# -- Accelerate --------------------------------------------------------------------------


def _tell_of_state(state: Any) -> None:
    """Accelerate may leave alone each rank of a world that formed: only it knows. The state is
    made anew again and again, and is the same one."""
    original = state.__init__

    @functools.wraps(original)
    def told_of(self: Any, *args: Any, **named: Any) -> None:
        new = not state._shared_state
        original(self, *args, **named)
        if new:
            with contextlib.suppress(Exception):
                _say_formed(ACCELERATE, self.process_index, self.num_processes)

    state.__init__ = told_of


# -- JAX ---------------------------------------------------------------------------------


def _jax_claim(
    signature: inspect.Signature, args: tuple[Any, ...], named: Mapping[str, Any]
) -> dict[str, Any]:
    given = signature.bind(*args, **named).arguments
    address = given.get("coordinator_address") or os.environ.get("JAX_COORDINATOR_ADDRESS", "")
    return {
        "place": _first_number(given.get("process_id"), missing=-1),
        "size": _first_number(given.get("num_processes"), missing=0),
        "address": address,
    }


def _jax_place(*_: Any, **__: Any) -> tuple[int, int]:
    """Asking jax itself would start its devices."""
    from jax._src.distributed import global_state

    return global_state.process_id, global_state.num_processes


# -- Horovod -----------------------------------------------------------------------------


def _horovod_place(basics: Any, *_: Any, **__: Any) -> tuple[int, int]:
    return basics.rank(), basics.size()


# -- MPI ---------------------------------------------------------------------------------


def mpi_begins() -> None:
    """mpi4py starts MPI while its module is being imported."""
    _say_forming(MPI)


def _mpi_formed(module: ModuleType) -> None:
    if module.Is_initialized():
        _say_formed(MPI, module.COMM_WORLD.Get_rank(), module.COMM_WORLD.Get_size())


# -- TensorFlow --------------------------------------------------------------------------


def _mirrored_place(strategy: Any, *_: Any, **__: Any) -> tuple[int, int]:
    extended = strategy.extended
    return int(extended._id_in_cluster), int(extended._num_workers)


def _servers_place(strategy: Any, *_: Any, **__: Any) -> tuple[int, int]:
    return 0, int(strategy.extended._num_workers)


# -- details -----------------------------------------------------------------------------


def _first_number(*said: Any, missing: int) -> int:
    return next(_numbers(said), missing)


def _numbers(said: tuple[Any, ...]) -> Iterator[int]:
    for one in said:
        with contextlib.suppress(TypeError, ValueError):
            if int(one) >= 0:
                yield int(one)
