"""Plans for tests."""

from __future__ import annotations

import dataclasses

from sbtrain_perf.request import DataSet, Plan, Prediction, Role


def example_prediction() -> Prediction:
    return Prediction(
        queue_s=0.0,
        stage_s=2.0,
        start_s=10.0,
        step_s=0.1,
        steps=200,
        checkpoint_s=0.5,
        checkpoints=2,
        lost_s=0.0,
        total_s=33.0,
        cost=0.0,
        node_hours=0.02,
        dominant="step",
    )


def example_plan(**changes: object) -> Plan:
    """All-reduce on two nodes; `changes` replaces fields."""
    plan = Plan(
        run_id="digits-20261130-000000-abcd",
        run_dir="/shared/runs/digits-20261130-000000-abcd",
        workload="train_digits",
        script="/home/ada/train_digits.py",
        script_args=(),
        cluster="private",
        partition="spot",
        layout="allreduce",
        nodes=2,
        workers=2,
        servers=0,
        gpus_per_node=0,
        cores_per_node=4,
        roles=(
            Role(name="worker", index=0, node=0),
            Role(name="worker", index=1, node=1),
        ),
        steps=200,
        batch_per_worker=32,
        data=DataSet(paths=("/shared/data/digits.h5",), total_bytes=1_000_000, samples=1797),
        scratch_path="/tmp/%n",
        checkpoint_dir="/shared/runs/digits-20261130-000000-abcd/checkpoints",
        checkpoint_interval_s=30.0,
        resumable=True,
        preemption_signal="USR1",
        grace_s=15.0,
        max_requeues=20,
        mpi_plugin="pmi2",
        prediction=example_prediction(),
        coefficients="shipped",
        reason="shortest total time",
    )
    return dataclasses.replace(plan, **changes)
