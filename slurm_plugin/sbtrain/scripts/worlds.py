"""Which calls bring up a framework's world of ranks, by the names of its packages."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from sbtrain_perf.request import Framework

COMM_WORLD = "mpi4py.MPI.COMM_WORLD"
_LIGHTNING = ("Trainer", "Fabric", "LightningCLI")
_TRAINERS = ("Trainer", "Seq2SeqTrainer")
# By package: whose convention its ranks follow, and the ends of the names that are called.
_CALLS: Mapping[str, tuple[Framework, tuple[str, ...]]] = {
    "torch": (
        "torch",
        (
            *("distributed.init_process_group", "init_device_mesh", "rpc.init_rpc"),
            *("DistributedDataParallel", "FullyShardedDataParallel", "fully_shard"),
        ),
    ),
    "deepspeed": ("torch", ("deepspeed.initialize", "init_distributed")),
    "accelerate": ("torch", ("Accelerator", "PartialState")),
    "lightning": ("torch", _LIGHTNING),
    "lightning_fabric": ("torch", _LIGHTNING),
    "pytorch_lightning": ("torch", _LIGHTNING),
    "transformers": ("torch", _TRAINERS),
    "trl": ("torch", (*_TRAINERS, "SFTTrainer", "DPOTrainer", "GRPOTrainer", "RewardTrainer")),
    "composer": ("torch", ("Trainer",)),
    "tensorflow": (
        "tensorflow",
        (
            *("MultiWorkerMirroredStrategy", "CollectiveAllReduceStrategy"),
            *("ParameterServerStrategy", "ParameterServerStrategyV2", "ClusterCoordinator"),
            *("Server", "replica_device_setter", "train_and_evaluate"),
        ),
    ),
    "jax": ("jax", ("distributed.initialize",)),
    "keras": ("jax", ("distribution.initialize",)),  # Keras 3 has it for JAX alone
    "horovod": ("horovod", ("init",)),
}
PACKAGES = frozenset({*_CALLS, "mpi4py"})
_SPAWNS = ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes")
_BY_MPI = ("mpi", "mpi4py")  # what some of these calls are told, by word
# Where frameworks look for a process's place, which a script may take from MPI.
_PLACES = frozenset(
    (
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "TF_CONFIG"),
        *("JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "SLURM_PROCID", "SLURM_NTASKS"),
    )
)
_SETS = ("update", "setdefault", "putenv")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldStart:
    """call: as the script may write it. file: empty for the script itself. sure: false where
    it may never be brought up: a package was imported, and that alone."""

    framework: Framework
    call: str
    line: int
    file: str = ""
    sure: bool = True


def world_of_call(called: str, node: ast.Call) -> WorldStart | None:
    """called: the dotted name of what is called there."""
    framework, ends = _CALLS.get(called.partition(".")[0], ("plain", ()))
    if not any(called == end or called.endswith(f".{end}") for end in ends):
        return None
    said = (*node.args, *(one.value for one in node.keywords))
    if any(isinstance(one, ast.Constant) and one.value in _BY_MPI for one in said):
        framework = "mpi"
    return WorldStart(framework=framework, call=called.rpartition(".")[2], line=node.lineno)


def world_of_import(name: str, node: ast.stmt) -> WorldStart | None:
    """name: what the import brings."""
    if name == COMM_WORLD:
        return WorldStart(framework="mpi", call="MPI.COMM_WORLD", line=node.lineno)
    if name.startswith(("mpi4py.MPI", "mpi4py.futures")):
        return WorldStart(framework="mpi", call="mpi4py", line=node.lineno, sure=False)
    return None


def spawns(called: str) -> bool:
    """Whether the call starts the processes of its node by itself."""
    return called in _SPAWNS


def sets_place(node: ast.AST) -> bool:
    """Whether it writes one of the variables that say which rank a process is."""
    if isinstance(node, ast.Assign):
        keys = [one.slice for one in node.targets if isinstance(one, ast.Subscript)]
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _SETS:
        given = node.args[0] if node.args else None
        keys = [one for one in getattr(given, "keys", [given]) if one is not None]
        keys += [ast.Constant(value=one.arg) for one in node.keywords]
    else:
        return False
    return any(isinstance(one, ast.Constant) and one.value in _PLACES for one in keys)
