"""Site files that are wrong about the private cluster: what they say, and what a warning names.

Each describes standard on c[1-4] of 4 cores and 16,000 MiB for at most 7 days, 30 min unless
told; spot on all eight nodes, which may be preempted, with a grace of 15 s; urgent on all.
"""

from __future__ import annotations

from dataclasses import dataclass

RIGHT = """\
name = "was"
[partitions.standard]
nodes = 4
cores_per_node = 4
memory_gib_per_node = 15
max_time_h = 168
default_time_h = 0.5
[partitions.spot]
nodes = 8
cores_per_node = 4
memory_gib_per_node = 15
gpus_per_node = 0
max_time_h = 168
preemptible = true
grace_s = 15
[partitions.urgent]
nodes = 8
cores_per_node = 4
gpus_per_node = 0
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleSite:
    """old, new: what of the right file is otherwise; names: in the warning."""

    what: str
    old: str
    new: str
    names: str

    @property
    def text(self) -> str:
        assert self.old in RIGHT, self.what
        return RIGHT.replace(self.old, self.new, 1)


def _case(what: str, old: str, new: str, names: str) -> StaleSite:
    return StaleSite(what=what, old=old, new=new, names=names)


def _on(nodes: int, gpus: int) -> str:
    return f"{{nodes = {nodes}, gpus_per_node = {gpus}}}"


_K80 = "gpu_types.k80"
_SMALL = "nodes = 1\ncores_per_node = 1\n"
_NODES = "[partitions.standard]\nnodes = 4\n"
_NONE = "gpus_per_node = 0"
_OLD = RIGHT.replace("[partitions.", "[partitions.old")
_GPUS = "gpus_per_node = 0\nmax_time_h = 168\npreemptible"


def _gpus(said: str) -> str:
    return _GPUS.replace(_NONE, said)


STALE_SITES = (
    _case("64 nodes where 4 are", _NODES, _NODES.replace("4", "64"), "standard.nodes: 64"),
    _case("nodes were added", _NODES, _NODES.replace("4", "3"), "standard.nodes: 3"),
    _case("a node is gone", _NODES, _NODES.replace("4", "5"), "standard.nodes: 5"),
    _case("renamed", "[partitions.spot]", "[partitions.preempt]", "partitions.preempt"),
    _case("the default renamed", "[partitions.standard]", "[partitions.cpu]", "cpu"),
    _case("gone", "[partitions.urgent]", "[partitions.night]", "partitions.night"),
    _case("one too many", _NODES, f"[partitions.x]\n{_SMALL}{_NODES}", "partitions.x"),
    _case("all are renamed", RIGHT, _OLD, "oldspot"),
    _case("a longer limit", "max_time_h = 168", "max_time_h = 720", "max_time_h: 720"),
    _case("another default time", "default_time_h = 0.5", "default_time_h = 1", "default_time"),
    _case("a long default time", "default_time_h = 0.5", "default_time_h = 168", "168"),
    _case("more nodes a job", _NODES, f"{_NODES}max_nodes_per_job = 9\n", "per_job: 9"),
    _case("more cores", "cores_per_node = 4", "cores_per_node = 64", "cores_per_node: 64"),
    _case("more memory", "memory_gib_per_node = 15", "memory_gib_per_node = 500", "500"),
    _case("a longer grace", "grace_s = 15", "grace_s = 300", "grace_s: 300"),
    _case(
        "a longer kill",
        'name = "was"\n',
        'name = "was"\nkill_wait_s = 300\n',
        "kill_wait_s: 300",
    ),
    _case("no grace", "grace_s = 15", "grace_s = 0", "grace_s: 0"),
    _case("safe once", "preemptible = true\ngrace_s = 15", "preemptible = false", "false"),
    _case("GPUs where none are", _NODES, f'{_NODES}gpu = "V100"\n', "standard.gpu: "),
    _case("other GPUs", _GPUS, _gpus('gpu = "A100"'), "spot.gpu: "),
    _case("more GPUs a node", _GPUS, _gpus(f"{_K80} = {_on(4, 8)}"), "gpu_types"),
    _case("GPUs on more nodes", _GPUS, _gpus(f"{_K80} = {_on(8, 2)}"), "gpu_types"),
    _case(
        "a type that is gone",
        _GPUS,
        _gpus(f"gpu_types.P100 = {_on(4, 2)}\n{_K80} = {_on(4, 2)}"),
        "gpu_types",
    ),
)
PARTITIONS = (
    "standard Nodes=c[1-4] Default=YES MaxTime=7-0 DefaultTime=30 PreemptMode=OFF",
    "spot Nodes=c[1-4],g[1-4] MaxTime=7-0 DefaultTime=30 PreemptMode=REQUEUE GraceTime=15",
    "urgent Nodes=c[1-4],g[1-4] MaxTime=7-0 DefaultTime=30 PreemptMode=OFF PriorityTier=10",
)
