"""A small cluster, a request for it and the decision on it, as the planner's tests use them."""

from __future__ import annotations

import dataclasses
import re

from sbtrain_perf.coefficients import load_coefficients
from sbtrain_perf.planner import Decision, Row, plan_request
from sbtrain_perf.request import ClusterShape, DataSet, ModelShape, Partition, Request

SHIPPED = load_coefficients()


def partition(name: str = "batch", **changes: object) -> Partition:
    plain = Partition(
        name=name,
        nodes=8,
        max_nodes_per_job=8,
        cores_per_node=16,
        memory_gib_per_node=64,
        price_per_node_hour=1.0,
        scratch_path="/tmp/%n",
    )
    return dataclasses.replace(plain, **changes)


def cluster(*partitions: Partition) -> ClusterShape:
    return ClusterShape(
        name="test",
        source="test.toml",
        partitions=partitions or (partition(),),
        shared_bytes_s=2e9,
        shared_client_bytes_s=1e9,
    )


def request(**changes: object) -> Request:
    plain = Request(
        script="train.py",
        workload="digits",
        epochs=10,
        batch_per_worker=32,
        data=DataSet(paths=("/data/d.h5",), total_bytes=10**8, samples=50_000),
        model=ModelShape(parameters=1_000_000, tensors=60),
        resumable=True,
    )
    return dataclasses.replace(plain, **changes)


def decide(asked: Request, shape: ClusterShape, **waits: float) -> Decision:
    return plan_request(
        asked, shape, SHIPPED, run_id="run-1", run_dir="/runs/run-1", queue_waits=waits
    )


def figures(words: str | None) -> list[float]:
    """The numbers that a sentence holds: they are pinned, the words around them may change."""
    return [float(found) for found in re.findall(r"\d+(?:\.\d+)?", words or "")]


def chosen_row(decision: Decision) -> Row:
    (row,) = [row for row in decision.rows if row.chosen]
    return row
