"""A private, rootless, multi-node Slurm on one host."""

from __future__ import annotations

from sbtrain.cluster.lifecycle import PrivateCluster, Status, down, environment, status, up
from sbtrain.cluster.nodes import NodeState, crash_node, start_node

__all__ = [
    "NodeState",
    "PrivateCluster",
    "Status",
    "crash_node",
    "down",
    "environment",
    "start_node",
    "status",
    "up",
]
