"""What a rank's environment says of its world: by framework, by Slurm, past proxies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import pytest

from plans import example_plan
from sbtrain_jobs.layouts.convention import convention_of
from sbtrain_jobs.layouts.proxies import around_proxies
from sbtrain_jobs.layouts.slurm_task import task_environment
from sbtrain_jobs.layouts.trainer import RoleContext, role_environment
from sbtrain_perf.request import Framework, Plan, Role

TORCH = {
    *("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE"),
    *("LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"),
}
TENSORFLOW = {"TF_CONFIG", "TF_GRPC_REUSE_PORT"}
HOROVOD = {"HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"}
JAX = {"JAX_COORDINATOR_ADDRESS"}
OF_FRAMEWORKS = TORCH | TENSORFLOW | HOROVOD | JAX | {"JAX_LOCAL_DEVICE_IDS"}


def world(framework: Framework, *, nodes: int = 2, per_node: int = 2) -> Plan:
    workers = nodes * per_node
    roles = tuple(Role(name="worker", index=i, node=i // per_node) for i in range(workers))
    return example_plan(framework=framework, nodes=nodes, workers=workers, roles=roles)


def environment(
    plan: Plan,
    rank: int,
    environ: Mapping[str, str] | None = None,
    *,
    accelerators: bool = True,
) -> dict[str, str]:
    context = RoleContext(
        rank=rank,
        attempt=0,
        job_id="7",
        plan_path="/plan.json",
        addresses=tuple(f"10.0.0.{r}:{4000 + r}" for r in range(len(plan.roles))),
        data=(),
        control="10.0.0.9:5000",
        token="secret",
        accelerators=accelerators,
    )
    return role_environment(plan, context, environ or {})


@pytest.mark.parametrize(
    ("framework", "names"),
    [
        ("plain", TORCH | TENSORFLOW | JAX),
        ("tensorflow", TORCH | TENSORFLOW),
        ("torch", TORCH),
        ("jax", TORCH | JAX),
        ("mpi", TORCH | JAX),
        ("horovod", TORCH | HOROVOD),
    ],
)
def test_each_framework_finds_its_own_variables(framework: Framework, names: set[str]) -> None:
    assert environment(world(framework), 3).keys() & OF_FRAMEWORKS == names


def test_every_framework_has_a_convention_and_mpi_starts_those_that_need_it() -> None:
    by_mpi = {name for name in get_args(Framework) if convention_of(name).by_mpi}
    assert by_mpi == {"mpi", "horovod"}


def test_torch_knows_rank_world_and_node() -> None:
    values = environment(world("torch"), 3)
    assert [values[name] for name in ("RANK", "LOCAL_RANK", "NODE_RANK")] == ["3", "1", "1"]
    assert (values["WORLD_SIZE"], values["LOCAL_WORLD_SIZE"]) == ("4", "2")
    assert (values["MASTER_ADDR"], values["MASTER_PORT"]) == ("10.0.0.0", "4000")


def test_ranks_of_accelerate_meet_on_a_node_of_cpus_too() -> None:
    """Accelerate looks for others among ranks that have GPUs, unless it is told otherwise."""
    name = "ACCELERATE_USE_CPU"
    assert environment(world("torch"), 1, accelerators=False)[name] == "true"
    assert name not in environment(world("torch"), 1)
    own = environment(world("torch"), 1, {name: "false"}, accelerators=False)
    assert name not in own


def test_jax_gets_an_address_that_needs_no_name_and_all_gpus_that_it_sees() -> None:
    """Under Slurm, JAX takes the GPU that has the number of its local rank, and no other."""
    one_a_node = environment(world("jax", per_node=1), 1, {"CUDA_VISIBLE_DEVICES": "4,5,6"})
    assert one_a_node["JAX_COORDINATOR_ADDRESS"] == "10.0.0.0:4000"
    assert one_a_node["JAX_LOCAL_DEVICE_IDS"] == "0,1,2"
    second = environment(world("jax"), 1, {"CUDA_VISIBLE_DEVICES": "0,1"})
    assert (second["CUDA_VISIBLE_DEVICES"], second["JAX_LOCAL_DEVICE_IDS"]) == ("1", "0")


@pytest.mark.parametrize(
    ("framework", "seen"), [("torch", "0,1"), ("horovod", "0,1"), ("mpi", "1"), ("plain", "1")]
)
def test_ranks_that_choose_by_local_rank_see_all_gpus(framework: Framework, seen: str) -> None:
    """torch.cuda.set_device(LOCAL_RANK) fails where a rank sees one GPU alone."""
    gpus = {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert environment(world(framework), 3, gpus)["CUDA_VISIBLE_DEVICES"] == seen
    asked = {**gpus, "SLURM_GPUS_PER_TASK": "1"}
    assert environment(world(framework), 3, asked)["CUDA_VISIBLE_DEVICES"] == "1"


def test_gpus_of_amd_are_shared_out_by_one_variable() -> None:
    """HIP counts within what ROCR leaves."""
    plan, both = world("plain"), {"ROCR_VISIBLE_DEVICES": "0,1", "CUDA_VISIBLE_DEVICES": "0,1"}
    values = environment(plan, 1, both)
    assert values["CUDA_VISIBLE_DEVICES"] == "1"
    assert "ROCR_VISIBLE_DEVICES" not in values
    alone = environment(plan, 1, {"ROCR_VISIBLE_DEVICES": "0,1"})
    assert alone["ROCR_VISIBLE_DEVICES"] == "1"


def test_a_rank_finds_what_srun_would_have_told_it() -> None:
    """As `srun -N2 -n4 --ntasks-per-node=2` on Slurm 22.05 has it, task 3."""
    agents = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"}
    assert task_environment(world("torch"), 3, agents) == {
        "SLURM_JOB_ID": "7",
        "SLURM_PROCID": "3",
        "SLURM_LOCALID": "1",
        "SLURM_NODEID": "1",
        "SLURM_GTIDS": "2,3",
        "SLURM_NTASKS": "4",
        "SLURM_NPROCS": "4",
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_NTASKS_PER_NODE": "2",
        "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    }


def test_uneven_nodes_are_written_as_slurm_writes_them() -> None:
    roles = tuple(Role(name="worker", index=i, node=n) for i, n in enumerate((0, 0, 1, 1, 2)))
    plan = example_plan(nodes=3, workers=5, roles=roles)
    found = task_environment(plan, 4, {"SLURM_NTASKS_PER_GPU": "1"})
    assert found["SLURM_TASKS_PER_NODE"] == "2(x2),1"
    assert (found["SLURM_NTASKS_PER_NODE"], found["SLURM_LOCALID"]) == ("2", "0")
    assert "SLURM_NTASKS_PER_GPU" not in found  # an srun in the trainer takes but one of both


def test_beside_parameter_servers_slurms_variables_stay_the_steps() -> None:
    step = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}
    roles = (Role(name="ps", index=0, node=0), Role(name="worker", index=0, node=1))
    assert task_environment(example_plan(layout="ps", roles=roles), 1, step) == step


def test_the_runs_own_hosts_are_reached_without_a_proxy() -> None:
    hosts = ("10.0.0.1", "10.0.0.2", "c1", "c2")
    assert around_proxies({"no_proxy": "example.org"}, hosts) == {}
    said = around_proxies(
        {"HTTPS_PROXY": "http://p:3128", "no_proxy": "example.org, 10.0.0.1"}, hosts
    )
    assert said.keys() == {"no_proxy", "NO_PROXY"}
    assert set(said.values()) == {"example.org,10.0.0.1,10.0.0.2,c1,c2"}
    grpcs = around_proxies({"http_proxy": "p", "no_grpc_proxy": "x"}, hosts)
    assert grpcs["no_grpc_proxy"] == "x,10.0.0.1,10.0.0.2,c1,c2"
