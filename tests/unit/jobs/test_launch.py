"""From plan to argument lists and environments."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from plans import example_plan
from sbtrain_jobs.ending.grace import warning_s
from sbtrain_jobs.layouts.ranks import agents, chief_rank, ranks_on
from sbtrain_jobs.layouts.trainer import RoleContext, role_environment
from sbtrain_jobs.node_agent.trainer_command import HOOKS, import_path, trainer_argv
from sbtrain_jobs.supervisor.srun_commands import (
    StepShape,
    agent_command,
    srun_environment,
    staging_command,
    step_shape,
)
from sbtrain_perf.request import DataSet, Plan, Role

SERVERS = (
    Role(name="ps", index=0, node=0),
    Role(name="chief", index=0, node=0),
    Role(name="worker", index=0, node=1),
    Role(name="worker", index=1, node=2),
)


def servers_plan() -> Plan:
    return example_plan(layout="ps", nodes=3, workers=2, servers=1, roles=SERVERS)


def environment(
    plan: Plan, rank: int, *, visible_devices: str | None = None
) -> Mapping[str, str]:
    context = RoleContext(
        rank=rank,
        attempt=2,
        job_id="",
        plan_path="/shared/plan.json",
        addresses=tuple(f"10.0.0.{r}:{4000 + r}" for r in range(len(plan.roles))),
        data=("/tmp/a.h5", "/tmp/b.h5"),
        control="10.0.0.9:5000",
        token="secret",
    )
    environ = {} if visible_devices is None else {"CUDA_VISIBLE_DEVICES": visible_devices}
    return role_environment(plan, context, environ)


def test_allreduce_gives_tensorflow_its_workers_alone() -> None:
    config = json.loads(environment(example_plan(), 1)["TF_CONFIG"])
    assert config == {
        "cluster": {"worker": ["10.0.0.0:4000", "10.0.0.1:4001"]},
        "task": {"type": "worker", "index": 1},
    }


def test_parameter_servers_give_tensorflow_all_three_kinds() -> None:
    config = json.loads(environment(servers_plan(), 3)["TF_CONFIG"])
    assert config == {
        "cluster": {
            "ps": ["10.0.0.0:4000"],
            "chief": ["10.0.0.1:4001"],
            "worker": ["10.0.0.2:4002", "10.0.0.3:4003"],
        },
        "task": {"type": "worker", "index": 1},
    }


def test_workers_are_listed_by_index_whatever_the_order_of_roles() -> None:
    roles = (Role(name="worker", index=1, node=0), Role(name="worker", index=0, node=1))
    values = environment(example_plan(roles=roles), 0)
    config = json.loads(values["TF_CONFIG"])
    assert config["cluster"]["worker"] == ["10.0.0.1:4001", "10.0.0.0:4000"]
    assert (values["MASTER_ADDR"], values["MASTER_PORT"]) == ("10.0.0.1", "4001")
    assert chief_rank(example_plan(roles=roles)) == 1


def test_a_trainer_learns_its_place() -> None:
    values = environment(servers_plan(), 2)
    assert values["SBTRAIN_ROLE"] == "worker"
    assert values["SBTRAIN_ROLE_INDEX"] == "0"
    assert values["SBTRAIN_RANK"] == "2"
    assert values["SBTRAIN_WORLD_SIZE"] == "2"
    assert values["SBTRAIN_NODE"] == "1"
    assert values["SBTRAIN_ATTEMPT"] == "2"
    assert values["SBTRAIN_DATA"].split(os.pathsep) == ["/tmp/a.h5", "/tmp/b.h5"]
    assert values["SBTRAIN_SCRIPT_DIR"] == "/home/ada"
    assert values["TF_GRPC_REUSE_PORT"] == "true"
    assert "PYTHONPATH" not in values


def test_torch_variables_belong_to_workers() -> None:
    values = environment(servers_plan(), 3)
    assert (values["RANK"], values["WORLD_SIZE"]) == ("1", "2")
    assert (values["MASTER_ADDR"], values["MASTER_PORT"]) == ("10.0.0.2", "4002")
    assert "RANK" not in environment(servers_plan(), 0)


def two_on_a_node() -> Plan:
    roles = tuple(Role(name="worker", index=i, node=i // 2) for i in range(4))
    return example_plan(roles=roles, workers=4)


@pytest.mark.parametrize(
    ("rank", "visible", "given"),
    [
        (0, "0,1", "0"),
        (1, "0,1", "1"),
        (3, "4,5,6,7", "6,7"),
        (1, "0", "0"),  # fewer GPUs than workers: they share
    ],
)
def test_gpus_of_a_node_are_shared_out_among_its_workers(
    rank: int, visible: str, given: str
) -> None:
    values = environment(two_on_a_node(), rank, visible_devices=visible)
    assert values["CUDA_VISIBLE_DEVICES"] == given
    assert values["LOCAL_RANK"] == str(rank % 2)


def test_servers_and_their_coordinator_see_no_gpu() -> None:
    for rank in (0, 1):
        values = environment(servers_plan(), rank, visible_devices="0,1")
        assert values["CUDA_VISIBLE_DEVICES"] == "-1"
    assert (
        environment(servers_plan(), 2, visible_devices="0,1")["CUDA_VISIBLE_DEVICES"] == "0,1"
    )
    assert "CUDA_VISIBLE_DEVICES" not in environment(servers_plan(), 0)


@pytest.mark.parametrize(
    ("script", "shebang", "argv"),
    [
        ("/a/train.py", "", ("/v/python", "/a/train.py", "-x")),
        (
            "/a/train.py",
            "#!/usr/bin/env python3",
            ("/usr/bin/env", "python3", "/a/train.py", "-x"),
        ),
        (
            "/a/t",
            "#!/usr/bin/env -S python3 -u",
            ("/usr/bin/env", "-S python3 -u", "/a/t", "-x"),
        ),
        ("/a/train", "#!/usr/bin/python3", ("/usr/bin/python3", "/a/train", "-x")),
        ("/a/train.sh", "", ("/bin/bash", "/a/train.sh", "-x")),
        ("/a/train.sh", "#!/bin/bash -l", ("/bin/bash", "-l", "/a/train.sh", "-x")),
        ("/a/t", "#!/bin/sh -e -u", ("/bin/sh", "-e -u", "/a/t", "-x")),
        ("/a/t", "#!/usr/bin/env bash", ("/usr/bin/env", "bash", "/a/t", "-x")),
    ],
)
def test_scripts_run_as_their_first_line_says(
    script: str, shebang: str, argv: tuple[str, ...]
) -> None:
    said = trainer_argv(script, ("-x",), shebang=shebang, python="/v/python", environ={})
    assert said == argv


def test_a_python_script_runs_in_its_users_environment(tmp_path: Path) -> None:
    """The active one first; a module's next; the system's own has none of his packages."""

    def python_of(**environ: str) -> str:
        said = trainer_argv("/t.py", (), shebang="", python="/v/python", environ=environ)
        return said[0]

    for name in ("venv", "conda", "module"):
        (tmp_path / name / "bin").mkdir(parents=True)
        (tmp_path / name / "bin/python3").touch(mode=0o700)
    venv, conda, module = (str(tmp_path / name) for name in ("venv", "conda", "module"))
    path = f"{module}/bin:/usr/bin"
    assert python_of(VIRTUAL_ENV=venv, CONDA_PREFIX=conda, PATH=path) == f"{venv}/bin/python3"
    assert python_of(CONDA_PREFIX=conda, PATH=path) == f"{conda}/bin/python3"
    assert python_of(PATH=path) == f"{module}/bin/python3"
    assert python_of(PATH="/usr/bin") == "/v/python"
    assert python_of(VIRTUAL_ENV="/gone") == "/v/python"


def test_join_is_found_last(tmp_path: Path) -> None:
    plan = example_plan(script=str(tmp_path / "script/train.py"), script_dir="/home/ada")
    environ = {"PYTHONPATH": "/opt/lib"}
    own = f"{HOOKS}:/home/ada:/opt/lib"
    assert import_path(plan, environ) == {"PYTHONPATH": own}
    (tmp_path / "python").mkdir()
    assert import_path(plan, environ) == {"PYTHONPATH": f"{own}:{tmp_path}/python"}


def test_hooks_come_first_unless_they_are_turned_off() -> None:
    plan = example_plan()
    assert import_path(plan, {}) == {"PYTHONPATH": HOOKS}
    assert [path.name for path in Path(HOOKS).glob("*.py")] == ["sitecustomize.py"]
    assert import_path(plan, {"SBTRAIN_HOOKS": "0"}) == {}
    assert import_path(example_plan(hooks=False), {}) == {}


def test_steps_have_one_task_a_node_and_end_as_the_supervisor_says() -> None:
    argv = agent_command(
        example_plan(), StepShape(), python="/v/python", plan_path="/p/plan.json"
    )
    assert argv[0] == "srun"
    assert {"--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--mpi=none"} <= set(argv)
    assert {"--kill-on-bad-exit=0", "--overlap", "--export=ALL"} <= set(argv)
    assert argv[-5:] == (
        "/v/python",
        "-P",
        "-m",
        "sbtrain_jobs.node_agent",
        "/p/plan.json",
    )


def test_ranks_that_meet_through_mpi_are_tasks_of_srun() -> None:
    plan = dataclasses.replace(two_on_a_node(), framework="mpi")
    argv = agent_command(plan, StepShape(), python="p", plan_path="/p.json", mpi="pmi2")
    assert {"--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--mpi=pmi2"} <= set(argv)
    assert "--distribution=block" in argv
    assert agents(plan) == ((0,), (1,), (2,), (3,))
    assert agents(two_on_a_node()) == ((0, 1), (2, 3))


def test_an_agent_gets_all_that_the_job_has_of_its_node() -> None:
    """What a job asks for a task is for its ranks, which it reaches by another way."""
    job = {
        **{"SLURM_CPUS_PER_TASK": "4", "SRUN_CPUS_PER_TASK": "4", "SLURM_GPUS_PER_TASK": "a:1"},
        **{"SLURM_NTASKS_PER_GPU": "1", "SLURM_GPU_BIND": "single:1", "SLURM_HINT": "compute"},
        **{"SLURM_TRES_PER_TASK": "cpu:4,gres/gpu:1", "SLURM_MEM_PER_NODE": "8000"},
    }
    assert srun_environment({**job, "HOME": "/h"}) == {
        "HOME": "/h",
        "SLURM_MEM_PER_NODE": "8000",
    }
    shape = step_shape(job, binds_cpus=False)
    argv = agent_command(example_plan(), shape, python="p", plan_path="/p.json")
    (export,) = (word for word in argv if word.startswith("--export="))
    assert {"ALL", "SLURM_CPUS_PER_TASK=4", "SLURM_GPUS_PER_TASK=a:1"} <= set(
        export.removeprefix("--export=").split(",")
    )
    assert "TRES" not in export
    assert not [word for word in argv if word.startswith(("--gres", "--gpus", "--cpu-bind"))]
    assert "--cpu-bind=none" in agent_command(
        example_plan(), StepShape(), python="p", plan_path="/p.json"
    )


@pytest.mark.parametrize(
    ("job", "gres"),
    [
        ({"SLURM_GPUS_PER_TASK": "1"}, "gpu:2"),
        ({"SLURM_GPUS_PER_TASK": "a100:1"}, "gpu:a100:2"),
        ({"SLURM_TRES_PER_TASK": "cpu:4,gres/gpu:1"}, "gpu:2"),
        ({"SLURM_TRES_PER_TASK": "cpu:4,gres/gpu:a100:1"}, "gpu:a100:2"),
        ({"SLURM_TRES_PER_TASK": "cpu:4"}, ""),
        ({"SLURM_GPUS_PER_NODE": "2"}, ""),
        ({}, ""),
    ],
)
def test_gpus_are_asked_for_where_the_job_counts_them_by_task(
    job: dict[str, str], gres: str
) -> None:
    assert step_shape({**job, "SLURM_GPUS_ON_NODE": "2"}, binds_cpus=False).gres == gres


def staging(*paths: str, quiet: bool = False) -> tuple[str, ...]:
    return staging_command(
        example_plan(data=DataSet(paths=paths), quiet=quiet),
        StepShape(),
        python="/v/python",
        report="/r/stage.json",
        events="/r/e",
        scratch="/tmp/%n",
    )


def test_staging_names_every_source_and_the_plans_mpi() -> None:
    argv = staging("/s/a b.h5", "/s/tree")
    assert "--mpi=pmi2" in argv
    assert argv[-2:] == ("/s/a b.h5", "/s/tree")
    assert argv[argv.index("--to") + 1] == "/tmp/%n"
    assert "--quiet" not in argv[argv.index("run") :]
    assert staging("/s/tree", quiet=True)[-2:] == ("--quiet", "/s/tree")


def test_ranks_on_a_node_are_in_plan_order() -> None:
    assert ranks_on(servers_plan(), 0) == (0, 1)


@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ((), 60.0),
        (("--signal=B:USR1@90",), 90.0),
        (("--signal", "USR1@30"), 30.0),
        (("--signal=USR1",), 60.0),
        (("--signal=USR1@+5",), 5.0),
        (("--signal=USR1@ 5",), 5.0),
        (("--signal=USR1@",), 0.0),
        (("--signal=B:USR1@90", "-N2", "--signal=TERM@5"), 5.0),
    ],
)
def test_warning_before_the_time_limit(options: tuple[str, ...], seconds: float) -> None:
    assert warning_s(options) == seconds
