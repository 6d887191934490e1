"""The vocabulary: what is asked for, what the cluster has, and what was decided.

Request + ClusterShape -> (planner) -> Plan. A Plan, written as ``plan.json``, is the only
thing that crosses from the login node to the compute nodes. Units stand in the names:
``_s`` seconds, ``_bytes`` bytes, ``_bytes_s`` bytes per second, ``_gib`` 2**30 bytes.
Beside the decorator of its values, this file imports the standard library alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import Literal

from sbtrain_perf.values import dataclass

Layout = Literal["allreduce", "ps"]
LayoutChoice = Literal["auto", "allreduce", "ps"]
Launch = Literal["ranks", "script"]
# By whose convention the ranks of a script find each other; plain: by none that is known.
Framework = Literal["tensorflow", "torch", "jax", "horovod", "mpi", "plain"]
ObjectiveKind = Literal["balanced", "time", "cost", "node-hours", "deadline"]
RoleName = Literal["chief", "worker", "ps"]

PLAN_VERSION = 1
KILL_WAIT_S = 30.0  # from TERM to KILL, by Slurm's default


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """One accelerator model, by its published figures; None where they are not known."""

    name: str
    peak_tflops: float | None  # FP32
    memory_gib: float | None
    memory_bytes_s: float | None

    @property
    def known(self) -> bool:
        """Whether its speed can be told from figures."""
        return self.peak_tflops is not None and self.memory_bytes_s is not None

    @property
    def rates(self) -> tuple[float, float]:
        """FP32 TFLOPS and bytes/s of memory. Raises ValueError where they are not known."""
        if self.peak_tflops is None or self.memory_bytes_s is None:
            raise ValueError(f"the figures of {self.name} are not known")
        return self.peak_tflops, self.memory_bytes_s


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuGroup:
    """Nodes of a partition that hold one type of GPU."""

    gpu: GpuType
    nodes: int
    gpus_per_node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One Slurm partition of identical nodes, as the planner sees it.

    A Slurm partition that holds several types of GPU is one Partition a type, named
    `NAME:TYPE`, and one of any nodes, `NAME:mixed`: of that, gpu is the slowest, and mix says
    what there is. gres is what sbatch is asked for; empty: gpu:gpus_per_node.

    preempts_others: a job in it may push running jobs of other partitions aside.
    planned: false where it is for those who name it. whole_nodes: a job may have all cores of
    a node, of which it else gets cores_per_node. memory_gib_per_node: None where it is not
    known. assumed: fields that nothing states.
    """

    name: str
    nodes: int
    max_nodes_per_job: int
    cores_per_node: int
    memory_gib_per_node: float | None
    gpu: GpuType | None = None
    gpus_per_node: int = 0
    price_per_node_hour: float = 0.0
    preemptible: bool = False
    preempts_others: bool = False
    planned: bool = True
    whole_nodes: bool = True
    mean_time_to_preemption_s: float | None = None
    grace_s: float = 0.0
    max_time_s: float | None = None
    default_time_s: float | None = None
    network_bytes_s: float = 1.25e9  # one node's link
    scratch_path: str | None = None  # %n node, %u user, %j job id
    scratch_bytes: int = 0
    scratch_bytes_s: float = 5e8
    gres: str = ""
    mix: tuple[GpuGroup, ...] = ()
    assumed: tuple[str, ...] = ()


def warned_s(*, grace_s: float, kill_wait_s: float) -> float:
    """From Slurm's first signal of a preemption to its kill. Where a partition has no grace
    time that signal is TERM, and the wait after it is all there is."""
    return grace_s or kill_wait_s


def slurm_partition(name: str) -> str:
    """Slurm's own name of a Partition."""
    return name.partition(":")[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterShape:
    """A cluster as the planner sees it. assumed: fields that nothing states."""

    name: str
    source: str  # the file it was read from, or Slurm
    partitions: tuple[Partition, ...]
    shared_bytes_s: float  # shared filesystem, all clients together
    shared_client_bytes_s: float  # shared filesystem, one client
    currency: str = "USD"
    requeue_delay_s: float = 120.0  # a requeued job's hold before it may start again
    kill_wait_s: float = KILL_WAIT_S
    preemption_signal: str = "USR1"
    mpi_plugin: str = ""  # srun --mpi=; empty: what fits the MPI library
    max_requeues: int = 20
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Features of the network that is trained; what is unknown stays None."""

    parameters: int | None = None
    tensors: int | None = None
    activation_bytes_per_sample: int | None = None
    flops_per_sample: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """The input of a training run on the shared filesystem."""

    paths: tuple[str, ...] = ()
    total_bytes: int = 0
    samples: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What the plan minimises; balanced: price and time together (sbtrain_perf.near_tie).
    Kind 'deadline' alone has the others: deadline_s, and sure, the probability (0.5 to 0.999)
    with which it must be kept."""

    kind: ObjectiveKind = "balanced"
    deadline_s: float | None = None
    sure: float = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRange:
    """Nodes the user allows, both ends included."""

    low: int = 1
    high: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One submission: the script, what it trains on, and what the user fixed.

    sbatch_options holds what the user told sbatch, by full names (`--name=value`), the one that
    counts last; without what sbtrain does itself.
    workload names what is learnt about this job across runs. forbidden_by: the option with
    which the user forbids that a resumable run is put back into the queue. workers_per_node:
    trainers on a node that trains, as the user asks; 0: as the framework wants them.
    """

    script: str
    script_args: tuple[str, ...] = ()
    workload: str = ""
    sbatch_options: tuple[str, ...] = ()
    partition: str | None = None
    layout: LayoutChoice = "auto"
    servers: int | None = None
    nodes: NodeRange = field(default_factory=NodeRange)
    objective: Objective = field(default_factory=Objective)
    steps: int | None = None
    epochs: float | None = None
    batch_per_worker: int = 128
    data: DataSet = field(default_factory=DataSet)
    model: ModelShape = field(default_factory=ModelShape)
    checkpoint_dir: str | None = None
    resumable: bool = False
    forbidden_by: str = ""
    time_limit_s: float | None = None
    launch: Launch = "ranks"
    framework: Framework = "plain"
    workers_per_node: int = 0

    @property
    def says_work(self) -> bool:
        """Whether it says how much is to be trained."""
        return not (self.steps is None and self.epochs is None and not self.data.samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """How far off the parts of a prediction may be: standard deviations of their logarithms;
    of lost_s, which may well be 0, in seconds. All 0: not known."""

    queue: float = 0.0
    stage: float = 0.0
    start: float = 0.0
    step: float = 0.0
    checkpoint: float = 0.0
    lost_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """Seconds and money that a plan is expected to take. total_s is the makespan.

    steps is the number of steps each synchronous replica takes (all-reduce), or the number
    of updates the servers apply (ps); step_s is the time from one to the next. low and high
    are the ends of 90 % intervals; None in plans of an sbtrain that gave none.
    """

    queue_s: float
    stage_s: float
    start_s: float
    step_s: float
    steps: int
    checkpoint_s: float
    checkpoints: int
    lost_s: float
    total_s: float
    cost: float
    node_hours: float
    dominant: str
    total_low_s: float | None = None
    total_high_s: float | None = None
    step_low_s: float | None = None
    step_high_s: float | None = None
    spread: Spread = field(default_factory=Spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What the models say of a plan's parts before anything is learnt of its workload.

    Refit has no cluster to look at: it measures against these figures. 0 where a part
    does not occur (server_s under all-reduce, say).
    """

    parameters: int = 0  # of the network; assumed where parameters_known is false
    tensors: int = 0
    parameters_known: bool = False
    compute_s: float = 0.0  # a step of one node's workers, communication left out
    transfer_s: float = 0.0  # the gradients, once over one node's link
    hop_s: float = 0.0  # one hop of the ring
    server_s: float = 0.0  # one server's time for one update
    stage_bytes_s: float = 0.0  # the slowest part of the staging chain
    link_bytes_s: float = 0.0
    checkpoint_byte_s: float = 0.0  # seconds a byte of a checkpoint
    preemption_s: float = 0.0  # mean time to one, as stated or assumed; 0: none expected


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One trainer process: what it is, on which node of the allocation (0-based)."""

    name: RoleName
    index: int
    node: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was decided. Written once, as plan.json, and never changed.

    script is what runs; script_dir the folder of the user's own script where script is a
    copy of it, else empty. launch: the script is started by sbtrain once for every rank, or
    once, as sbatch would, and starts the ranks itself. steps_known: false where nothing says
    how many steps the script takes, so that steps and prediction are invented. quiet: of
    what sbtrain says in the job, warnings and errors are wanted alone. whole_nodes: no other
    job shares them; else each gives cores_per_node. hooks: the ranks' Python may be watched.

    roles places every trainer process, several workers of a node side by side. All-reduce:
    workers only, worker 0 is the chief. Parameter servers: one chief (coordinator) beside
    server 0, servers and workers on their own nodes. framework: whose convention they follow.
    """

    run_id: str
    run_dir: str
    workload: str
    script: str
    script_args: tuple[str, ...]
    cluster: str
    partition: str
    layout: Layout
    nodes: int
    workers: int
    servers: int
    gpus_per_node: int
    cores_per_node: int
    roles: tuple[Role, ...]
    steps: int
    batch_per_worker: int
    data: DataSet
    scratch_path: str | None
    checkpoint_dir: str
    checkpoint_interval_s: float
    resumable: bool
    preemption_signal: str
    grace_s: float
    max_requeues: int
    mpi_plugin: str
    prediction: Prediction
    coefficients: str  # which coefficients predicted it
    reason: str
    submitted_at: str = ""  # ISO 8601, UTC
    sbatch_options: tuple[str, ...] = ()
    basis: Basis = field(default_factory=Basis)
    script_dir: str = ""
    gres: str = ""  # empty: gpu:gpus_per_node
    launch: Launch = "ranks"
    framework: Framework = "plain"
    kill_wait_s: float = KILL_WAIT_S
    steps_known: bool = True
    quiet: bool = False
    whole_nodes: bool = True
    hooks: bool = True
    version: int = PLAN_VERSION

    @property
    def warned_s(self) -> float:
        """From the first signal of a preemption to the kill."""
        return warned_s(grace_s=self.grace_s, kill_wait_s=self.kill_wait_s)

    @property
    def workers_per_node(self) -> int:
        """Most trainers on any of the nodes that train."""
        counts = Counter(role.node for role in self.roles if role.name == "worker")
        return max(counts.values(), default=1)
