"""What a job that is submitted from inside another job or run inherits of that."""

from __future__ import annotations

from typing import get_args

import pytest

from plans import example_plan
from sbtrain.slurm.outer_job import to_submit_from, without_outer_run
from sbtrain_jobs.layouts.environment import (
    TEMPORARY_PREFIX,
    TRAINER_VARIABLES,
    RunContext,
    run_environment,
)
from sbtrain_jobs.layouts.trainer import RoleContext, role_environment
from sbtrain_perf.request import Framework, Plan, Role

OWN = {"HOME": "/home/ada", "SBTRAIN_HOME": "/d", "SBTRAIN_SITE": "big", "SBATCH_GPUS": "2"}
OF_THE_JOB = {"SLURM_JOB_ID": "85", "SLURM_CONF": "/s.conf", "SLURM_ARRAY_TASK_ID": "3"}
ASKED_FOR = {
    **{"SLURM_GPUS": "1", "SLURM_GPUS_PER_NODE": "1", "SLURM_MEM_PER_CPU": "50"},
    **{"SLURM_NTASKS": "2", "SLURM_NTASKS_PER_GPU": "1", "SLURM_HET_SIZE": "2"},
    **{"SLURM_CPUS_PER_TASK": "4", "SRUN_CPUS_PER_TASK": "4", "SLURM_DISTRIBUTION": "plane"},
    **{"PMI_SIZE": "4", "PMIX_RANK": "1", "SLURM_STEPID": "0", "OMPI_COMM_WORLD_SIZE": "4"},
    **{"SLURM_STEP_ID": "0", "SLURM_STEP_GRES": "gpu:1", "SLURM_TRES_PER_TASK": "cpu:4"},
}
SERVERS = (
    *(Role(name="ps", index=0, node=0), Role(name="chief", index=0, node=0)),
    Role(name="worker", index=0, node=1),
)


def gained(plan: Plan, rank: int) -> dict[str, str]:
    context = RoleContext(
        rank=rank,
        attempt=1,
        job_id="85",
        plan_path="/plan.json",
        addresses=tuple(f"10.0.0.{one}:1" for one in range(len(plan.roles))),
        data=("/data",),
        control="10.0.0.9:1",
        token="t",
    )
    return role_environment(plan, context, {"CUDA_VISIBLE_DEVICES": "0,1"})


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_all_that_a_trainer_gains_is_dropped(rank: int) -> None:
    plans = [example_plan(layout="ps", workers=1, servers=1, roles=SERVERS)]
    if rank < 2:
        plans += [example_plan(framework=name) for name in get_args(Framework)]
    for plan in plans:
        its = gained(plan, rank)
        assert set(its) <= TRAINER_VARIABLES
        temporary = {"TMPDIR": f"/scratch/c1/{TEMPORARY_PREFIX}x1y2"}
        assert without_outer_run({**OWN, **its, **temporary}) == OWN
        assert to_submit_from({**OWN, **its, **temporary}) == OWN


def test_outside_a_run_what_the_user_has_set_stays() -> None:
    own = {**OWN, "RANK": "3", "CUDA_VISIBLE_DEVICES": "1", "TMPDIR": "/big/tmp"}
    assert without_outer_run(own) == to_submit_from(own) == own
    trainers = {**gained(example_plan(), 0), "TMPDIR": "/big/tmp"}
    assert without_outer_run({**own, **trainers}) == {**OWN, "TMPDIR": "/big/tmp"}


def test_inside_a_script_that_starts_its_ranks_what_it_has_set_stays() -> None:
    """sbtrain has given it no more than the run's own variables."""
    context = RunContext(
        attempt=0, job_id="85", plan_path="/p", data=(), control="10.0.0.9:1", token="t"
    )
    its = {**OWN, "RANK": "3", "MASTER_ADDR": "c1", "CUDA_VISIBLE_DEVICES": "1"}
    assert without_outer_run({**its, **run_environment(example_plan(), context)}) == its


def test_what_the_job_around_asked_for_is_dropped_and_all_else_handed_on() -> None:
    inside = {**OWN, **OF_THE_JOB, **ASKED_FOR}
    assert to_submit_from(inside) == {**OWN, **OF_THE_JOB}
    assert to_submit_from({**OWN, **ASKED_FOR}) == {**OWN, **ASKED_FOR}
