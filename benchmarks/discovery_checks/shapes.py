"""Slurms of thirteen shapes, each with eight nodes that run, on which nobody has
configured sbtrain."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from sbtrain.cluster import down, up
from sbtrain.cluster.folder import ClusterRecord

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")
_C, _G, _ALL = "c[1-4]", "g[1-4]", "c[1-4],g[1-4]"
_PLAIN = "CPUs=4 RealMemory=16000"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """nodes: of c1 to c4 and of g1 to g4, as NodeName has it; of one node by its name.
    more: of slurm.conf. qos: limits of the one that the user's jobs have."""

    what: str
    nodes: Mapping[str, str] = field(default_factory=dict)
    partitions: Sequence[str] = (f"main Nodes={_ALL} Default=YES",)
    more: Sequence[str] = ()
    accounting: bool = False
    qos: str = ""

    def node(self, name: str) -> str:
        return self.nodes.get(name, self.nodes.get(name[0], _PLAIN))


SHAPES = (
    Shape(what="one partition, nothing else"),
    Shape(
        what="forty partitions",
        partitions=(
            *(f"q{at} Nodes={_C if at % 3 else _G} MaxTime={at + 1}:00:00" for at in range(39)),
            f"all Nodes={_ALL} Default=YES",
        ),
    ),
    Shape(what="GPUs as NVML names them", nodes={"g": "nvidia_h100_80gb_hbm3:4"}),
    Shape(
        what="untyped GPUs, the partition tells",
        nodes={"g": "4"},
        partitions=(f"cpu Nodes={_C} Default=YES", f"h100 Nodes={_G}"),
    ),
    Shape(
        what="three kinds of node in one partition",
        nodes={"g1": "a:2", "g2": "a:2", "g3": "b:4", "g4": "b:4"},
    ),
    Shape(
        what="hidden, down, empty and closed partitions",
        partitions=(
            f"main Nodes={_C} Default=YES",
            f"secret Nodes={_ALL} Hidden=YES",
            f"shut Nodes={_ALL} State=DOWN",
            f"drained Nodes={_ALL} State=DRAIN",
            "empty",
            f"theirs Nodes={_ALL} AllowGroups=nogroup",
        ),
    ),
    Shape(
        what="features, one of which names the GPU",
        nodes={"g": "2 Feature=v100,ib", "c": f"{_PLAIN} Feature=skylake,ib"},
    ),
    Shape(what="no default partition", partitions=(f"one Nodes={_C}", f"two Nodes={_G}")),
    Shape(
        what="narrow limits, uneven nodes",
        nodes={"c1": "CPUs=2 RealMemory=4000", "c2": "CPUs=4"},
        partitions=(
            f"short Nodes={_C} Default=YES MaxTime=10 MaxNodes=1",
            f"wide Nodes={_ALL} MinNodes=2 MaxTime=INFINITE",
            f"none Nodes={_ALL} MaxNodes=0",
        ),
    ),
    Shape(
        what="preemption by tiers",
        partitions=(
            f"low Nodes={_ALL} Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=9",
            f"high Nodes={_ALL} PriorityTier=5 PreemptMode=OFF",
        ),
    ),
    Shape(
        what="no job gets a whole node",
        partitions=(f"shared Nodes={_ALL} Default=YES MaxCPUsPerNode=2",),
    ),
    Shape(what="accounting", accounting=True),
    Shape(
        what="accounting, QOS with limits",
        accounting=True,
        more=("AccountingStorageEnforce=limits,qos",),
        qos="MaxTRESPerJob=node=2 MaxWall=60",
    ),
)


@contextmanager
def running(shape: Shape) -> Iterator[dict[str, str]]:
    """The environment of a login shell on such a cluster, of which no file says that it is a
    private one."""
    folder = Path(tempfile.mkdtemp(prefix="sbt-shape-", dir="/tmp"))
    cluster = folder / "cluster"
    played = {
        "_node_lines": lambda record: _node_lines(shape, record),
        "_partition_lines": lambda _: [f"PartitionName={one}" for one in shape.partitions],
        "gres_conf": lambda nodes: "".join(_gres_lines(shape, nodes)),
    }
    try:
        with patch.multiple("sbtrain.cluster.config", **played):
            started = up(cluster, accounting=shape.accounting or None)
            if shape.more:
                down(cluster)
                (cluster / "etc/local.conf").write_text("\n".join((*shape.more, "")))
                started = up(cluster)
        conf = folder / "etc/slurm.conf"
        shutil.copytree(cluster / "etc", conf.parent)
        if shape.qos:
            _limit(started.environment, shape.qos)
        home = folder / "home"
        home.mkdir()
        yield {
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "PATH": started.environment["PATH"],
            "SBTRAIN_HOME": str(folder / "sbtrain"),
            "SLURM_CONF": str(conf),
            "USER": os.environ.get("USER", "root"),
        }
    finally:
        down(cluster)
        shutil.rmtree(folder, ignore_errors=True)


def _limit(environ: Mapping[str, str], qos: str) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    for words in (
        ["add", "qos", "limited", *qos.split()],
        ["modify", "user", user, "set", "qos+=limited", "defaultqos=limited"],
    ):
        argv = ["sacctmgr", "--immediate", *words]
        subprocess.run(argv, env={**os.environ, **environ}, check=True, capture_output=True)


def _gpus(shape: Shape, name: str) -> tuple[str, int] | None:
    """The type ("" for none) and the number that are written before anything else."""
    found = re.match(r"(?:([\w.-]+):)?(\d)(?: |$)", shape.node(name))
    return (found[1] or "", int(found[2])) if found else None


def _node_lines(shape: Shape, record: ClusterRecord) -> list[str]:
    lines = []
    for name, port in record.ports.nodes.items():
        said, gpus = shape.node(name), _gpus(shape, name)
        if gpus is not None:
            kind, count = gpus
            typed = f"gpu:{kind}:{count}" if kind else f"gpu:{count}"
            said = f"{_PLAIN} Gres={typed} {said.partition(' ')[2]}"
        where = f"NodeHostname={record.host} NodeAddr=127.0.0.1 Port={port}"
        lines.append(f"NodeName={name} {where} {said}")
    return lines


def _gres_lines(shape: Shape, nodes: Sequence[str]) -> Iterator[str]:
    for name in nodes:
        gpus = _gpus(shape, name)
        if gpus is not None:
            kind, count = gpus
            typed = f" Type={kind}" if kind else ""
            for device in _DEVICES[:count]:
                yield f"NodeName={name} Name=gpu{typed} File={device}\n"
