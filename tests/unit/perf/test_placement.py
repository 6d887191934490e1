"""How many trainers a job has, where, and that the planner counts the same ones."""

from __future__ import annotations

import dataclasses
import math

import pytest
from attempts import attempt
from decisions import SHIPPED, cluster, decide, partition
from decisions import request as any_request

from sbtrain_perf.codec import plan_from_json, plan_to_json
from sbtrain_perf.coefficients import Coefficients
from sbtrain_perf.placement import roles_of
from sbtrain_perf.planner import plan_request
from sbtrain_perf.refit import refit
from sbtrain_perf.request import Framework, GpuType, ModelShape, NodeRange, Plan, Request
from sbtrain_perf.timing_log import AttemptTimings

K80 = GpuType(name="K80", peak_tflops=4.113, memory_gib=12, memory_bytes_s=2.4e11)
GPUS = cluster(partition(gpu=K80, gpus_per_node=4))
TWO = NodeRange(low=2, high=2)


def request(**changes: object) -> Request:
    return any_request(**{"layout": "allreduce", **changes})


def planned(
    asked: Request, *, gpus: bool = False, coefficients: Coefficients = SHIPPED
) -> Plan:
    shape = GPUS if gpus else cluster()
    plan = plan_request(asked, shape, coefficients, run_id="run-1", run_dir="/r").chosen
    assert plan is not None
    return plan


def nodes_of(plan: Plan) -> list[int]:
    return [role.node for role in plan.roles if role.name == "worker"]


def test_workers_of_a_node_stand_side_by_side() -> None:
    roles = roles_of(nodes=2, servers=0, per_node=2)
    assert [(r.name, r.index, r.node) for r in roles] == [
        ("worker", 0, 0),
        ("worker", 1, 0),
        ("worker", 2, 1),
        ("worker", 3, 1),
    ]
    served = roles_of(nodes=3, servers=1, per_node=2)
    assert [(r.name, r.node) for r in served[:3]] == [("chief", 0), ("ps", 0), ("worker", 1)]
    assert [r.node for r in served[2:]] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("nodes", "per_node", "most", "placed"),
    [
        (2, 2, 3, [0, 0, 1]),
        (3, 4, 8, [0, 0, 0, 1, 1, 1, 2, 2]),
        (2, 2, math.inf, [0, 0, 1, 1]),
        (2, 1, 9, [0, 1]),
    ],
)
def test_workers_that_do_not_come_out_even(
    nodes: int, per_node: int, most: float, placed: list[int]
) -> None:
    roles = roles_of(nodes=nodes, servers=0, per_node=per_node, most=most)
    assert [role.node for role in roles] == placed
    assert [role.index for role in roles] == list(range(len(placed)))


@pytest.mark.parametrize(
    ("framework", "options", "gpus", "workers"),
    [
        ("torch", (), True, 8),
        ("horovod", (), True, 8),
        ("mpi", (), True, 8),
        ("tensorflow", (), True, 2),
        ("jax", (), True, 2),
        ("plain", (), True, 2),
        ("torch", (), False, 2),
        ("torch", ("--gres=gpu:2",), True, 4),
        ("torch", ("--gpus-per-node=k80:3",), True, 6),
        ("torch", ("--gpus=4",), True, 4),
        ("plain", ("--ntasks-per-gpu=2", "--gres=gpu:2"), True, 8),
        ("torch", ("--ntasks=3",), True, 3),
    ],
)
def test_a_framework_that_wants_one_rank_a_gpu_gets_it(
    framework: Framework, options: tuple[str, ...], gpus: bool, workers: int
) -> None:
    asked = request(framework=framework, sbatch_options=options, nodes=TWO)
    plan = planned(asked, gpus=gpus)
    assert (plan.framework, plan.workers, plan.nodes) == (framework, workers, 2)
    assert plan.workers == len(plan.roles)
    assert plan.workers_per_node == math.ceil(workers / 2)
    assert plan_from_json(plan_to_json(plan)) == plan


@pytest.mark.parametrize("framework", ["torch", "plain"])
def test_the_users_own_count_is_kept(framework: Framework) -> None:
    for gpus in (False, True):
        asked = request(framework=framework, workers_per_node=2, nodes=TWO)
        assert nodes_of(planned(asked, gpus=gpus)) == [0, 0, 1, 1]
    asked = request(framework=framework, workers_per_node=2, launch="script", nodes=TWO)
    assert nodes_of(planned(asked)) == [0, 1]  # it starts them itself


def test_tasks_bound_the_nodes_that_hold_so_many_trainers() -> None:
    asked = request(framework="torch", sbatch_options=("--ntasks=8",))
    decision = decide(asked, GPUS)
    assert max(row.nodes for row in decision.rows) == 2
    assert {row.workers for row in decision.rows if row.nodes == 2} == {8}
    spread = dataclasses.replace(asked, nodes=NodeRange(low=4, high=8))
    assert nodes_of(planned(spread, gpus=True)) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_steps_samples_are_those_of_all_workers_and_a_nodes_time_is_theirs() -> None:
    """Two workers of a node share its cores: they take as long as one for both batches."""
    one = planned(request(nodes=TWO, batch_per_worker=64))
    two = planned(request(nodes=TWO, batch_per_worker=32, workers_per_node=2))
    assert two.steps == one.steps == math.ceil(10 * 50_000 / 128)
    assert two.prediction.step_s == one.prediction.step_s
    assert two.basis == one.basis
    torch = planned(request(nodes=TWO, framework="torch"), gpus=True)
    assert torch.steps == math.ceil(10 * 50_000 / (8 * 32))
    assert torch.prediction.step_s > planned(request(nodes=TWO), gpus=True).prediction.step_s


def test_beside_servers_every_worker_sends_updates() -> None:
    asked = request(layout="ps", servers=1, nodes=NodeRange(low=3, high=3), steps=100)
    asked = dataclasses.replace(asked, epochs=None, batch_per_worker=4096)
    one, two = planned(asked), planned(dataclasses.replace(asked, workers_per_node=2))
    assert (one.workers, two.workers, two.steps) == (2, 4, 100)
    assert two.prediction.step_s == pytest.approx(one.prediction.step_s, rel=0.05)


def test_each_worker_of_a_node_has_its_own_weights() -> None:
    asked = request(model=ModelShape(parameters=800 * 10**6), workers_per_node=8, nodes=TWO)
    decision = decide(asked, cluster())
    assert "for 8 workers, a node has 64 GiB" in decision.refusal
    assert decide(dataclasses.replace(asked, workers_per_node=2), cluster()).chosen
    assert decide(dataclasses.replace(asked, framework="torch"), GPUS).chosen is None


def measured(plan: Plan, *, run_id: str, step_s: float) -> AttemptTimings:
    timings = attempt(run_id=run_id, step_s=step_s, noise=0.01)
    return dataclasses.replace(timings, plan=dataclasses.replace(plan, run_id=run_id))


def test_what_is_measured_of_several_workers_a_node_predicts_the_next_such_run() -> None:
    two = request(nodes=TWO, workers_per_node=2)
    before = planned(two).prediction.step_s
    runs = [measured(planned(two), run_id=f"run-{i}", step_s=3 * before) for i in (1, 2)]
    learnt = refit(runs, SHIPPED).coefficients
    (step,) = learnt.learnt.steps
    assert (step.workers_per_node, step.batch_per_worker, step.batch_per_node) == (2, 32, 64)
    again = planned(two, coefficients=learnt).prediction
    assert again.step_s == pytest.approx(3 * before, rel=0.03)
    # One worker with the node to itself is another thing, and gets a fit of its own.
    one = request(nodes=TWO)
    lone = measured(planned(one), run_id="run-3", step_s=before)
    both = refit([*runs, lone], SHIPPED).coefficients
    assert len(both.learnt.steps) == 2
    assert planned(one, coefficients=both).prediction.step_s == pytest.approx(before, rel=0.1)
    assert planned(two, coefficients=both).prediction.step_s == again.step_s
    # Until it is run itself it is as the models say of half the samples a node.
    guessed = planned(one, coefficients=learnt).prediction
    assert guessed.step_s < again.step_s
    assert guessed.spread.step > again.spread.step
