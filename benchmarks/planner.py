"""CPU time of one plan at 10,000 nodes and 1,000 partitions, in a fresh process.

What is timed: user and system time of a Python that imports the planner (numpy included),
loads the coefficients and plans one request; median of 5, the file cache warm. Clusters:
partitions of like hardware; partitions that all differ (GPU, cores, network, scratch, price,
preemption, limits); and these with a law of lifetimes learnt for each. All partitions hold
all 10,000 nodes, as overlapping Slurm partitions do: 170 million candidates. The yardstick in
the same run is a Python that imports numpy alone.

Prints a table, writes build/bench-planner.json, exits 1 where a bar is missed.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_table import BenchRow, finish

BAR_MS = 300.0
RUNS = 5

PLAN = """
import random, sys
from sbtrain_perf.coefficients import load_coefficients
from sbtrain_perf.planner import plan_request
from sbtrain_perf.request import (
    ClusterShape, DataSet, GpuType, ModelShape, Objective, Partition, Request)

r = random.Random(1)
differ, kind = sys.argv[1] != "alike", sys.argv[2]
learnt = sys.argv[3] if len(sys.argv) > 3 else None

def partition(i):
    if not differ:
        return Partition(name=f"p{i}", nodes=10_000, max_nodes_per_job=10_000,
            cores_per_node=32, memory_gib_per_node=256, scratch_path="/local/%n",
            price_per_node_hour=1.0)
    gpu = GpuType(name=f"g{i}", peak_tflops=r.uniform(4, 60), memory_gib=80,
        memory_bytes_s=r.uniform(2e11, 2e12))
    return Partition(name=f"p{i}", nodes=10_000, max_nodes_per_job=10_000,
        cores_per_node=r.randint(8, 128), memory_gib_per_node=256, gpu=gpu,
        gpus_per_node=r.randint(1, 8), price_per_node_hour=r.uniform(0.5, 5),
        preemptible=r.random() < 0.5, mean_time_to_preemption_s=r.uniform(1e4, 1e6),
        grace_s=r.choice([0, 60]), max_time_s=r.uniform(1e4, 1e6),
        network_bytes_s=r.uniform(1e9, 5e10), scratch_path="/local/%n",
        scratch_bytes_s=r.uniform(3e8, 3e9))

shape = ClusterShape(name="big", source="benchmark", shared_bytes_s=1e12,
    shared_client_bytes_s=1e10, partitions=tuple(partition(i) for i in range(1000)))
request = Request(script="train.py", workload="imagenet", epochs=90, batch_per_worker=256,
    data=DataSet(paths=("/data",), total_bytes=150 * 10**9, samples=1_281_167),
    model=ModelShape(parameters=25_000_000, tensors=160), resumable=True,
    objective=Objective(kind=kind, deadline_s=20_000.0 if kind == "deadline" else None))
waits = {f"p{i}": float(i % 7) * 60 for i in range(1000)}
decision = plan_request(request, shape, load_coefficients(learnt), run_id="r", run_dir="/r",
    queue_waits=waits)
assert decision.chosen is not None
assert decision.considered > 160_000_000
"""

LAWS = """
import dataclasses, random, sys
from sbtrain_perf.coefficients import LearntLifetime, coefficients_to_json, load_coefficients
from sbtrain_perf.fitting.lifetime import learn_lifetime

r = random.Random(2)

def learnt(i):
    mean_s = r.uniform(1e4, 1e6)
    ages_s = [r.expovariate(1.0 / mean_s) for _ in range(10)]
    law = learn_lifetime(mean_s, ages_s, ended=[True] * 10)
    return LearntLifetime(cluster="big", partition=f"p{i}", edges_s=law.edges_s,
        hazards_1_s=law.hazards_1_s, mean_s=law.mean_s, attempts=10, ended=10,
        runs=tuple(f"20260101-120000-{i:04x}{k:04x}" for k in range(10)))

shipped = load_coefficients()
lifetimes = tuple(learnt(i) for i in range(1000))
changed = dataclasses.replace(shipped.learnt, lifetimes=lifetimes)
with open(sys.argv[1], "w", encoding="utf-8") as file:
    file.write(coefficients_to_json(dataclasses.replace(shipped, learnt=changed)))
"""


def cpu_ms(code: str, *arguments: str) -> float:
    """User and system time of a fresh interpreter that runs the code; median of RUNS."""
    times = []
    for _ in range(RUNS + 1):
        process = subprocess.Popen([sys.executable, "-c", code, *arguments])
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"the timed program failed with {process.returncode}")
        times.append((usage.ru_utime + usage.ru_stime) * 1000)
    return statistics.median(times[1:])  # the first one warms the file cache


def main() -> int:
    numpy_ms = cpu_ms("import numpy")
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-planner-") as folder:
        laws = str(Path(folder) / "coefficients.json")
        subprocess.run([sys.executable, "-c", LAWS, laws], check=True)
        for cluster, learnt in (("alike", []), ("different", []), ("different", [laws])):
            for kind in ("balanced", "time", "cost", "deadline"):
                name = f"{cluster}, laws learnt" if learnt else cluster
                rows.append(
                    BenchRow(
                        what=f"plan CPU ms: 10,000 nodes, 1,000 partitions {name}, {kind}",
                        yardstick=f"import numpy {numpy_ms:.0f} ms",
                        value=cpu_ms(PLAN, cluster, kind, *learnt),
                        bar=None if learnt else BAR_MS,
                    )
                )
    return finish("planner", rows)


if __name__ == "__main__":
    sys.exit(main())
