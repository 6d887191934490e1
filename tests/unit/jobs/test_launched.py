"""Ranks that a script's own launcher started: which they are, and how they find the run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from plans import example_plan
from played_supervisor import PlayedSupervisor, eventually
from sbtrain_jobs.training.context import Defaults, trainer_context
from sbtrain_jobs.training.launched import PROGRAM, checkpoints_of, launched_rank
from sbtrain_jobs.training.reports import Reports
from sbtrain_jobs.training.step_gate import StepGate
from sbtrain_jobs.training.trainer_link import TrainerLink
from sbtrain_jobs.wire.messages import Hello, Notice
from sbtrain_jobs.wire.reach import candidate_addresses
from sbtrain_perf.codec import plan_to_json
from sbtrain_perf.request import DataSet

BATCH = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURMD_NODENAME": "c1"}
STEP = {**BATCH, "SLURM_STEP_ID": "0", "SLURM_PROCID": "3"}
TORCH = {
    **{"RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"},
    **{"MASTER_ADDR": "c1", "MASTER_PORT": "29500"},
}
OMPI = {
    **{"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"},
    **{"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "prterun-c1-12@1"},
}


@pytest.mark.parametrize(
    ("environ", "rank", "size", "beside"),
    [
        ({}, 0, 1, 1),
        (BATCH, 0, 1, 1),  # the batch script is no task of a step
        (STEP, 3, 4, 1),
        ({**STEP, **TORCH}, 5, 8, 4),
        ({**BATCH, **OMPI}, 1, 2, 2),
        ({**STEP, "PMI_RANK": "2", "PMI_SIZE": "3"}, 2, 3, 1),
        ({**STEP, "WORLD_SIZE": "8"}, 3, 4, 1),  # half of a launcher's word is none
        ({**STEP, "RANK": "9", "WORLD_SIZE": "8"}, 3, 4, 1),
        ({**STEP, "RANK": "one", "WORLD_SIZE": "two"}, 3, 4, 1),
        ({**STEP, "SLURM_PROCID": "-1"}, 0, 1, 1),
    ],
)
def test_the_launcher_says_which_rank(
    environ: dict[str, str], rank: int, size: int, beside: int
) -> None:
    found = launched_rank(environ)
    assert (found.rank, found.size, found.beside) == (rank, size, beside)


def test_ranks_of_one_launch_know_it_and_those_of_another_differ() -> None:
    def world(*parts: dict[str, str]) -> str:
        return launched_rank({name: text for one in parts for name, text in one.items()}).world

    second = {"SLURM_STEP_ID": "1"}
    assert world(STEP) == world({**STEP, "SLURM_PROCID": "1"})
    assert world(STEP) != world(STEP, second)
    # One torchrun a node, each in a step of its own; mpirun, on one node without a step.
    assert world(STEP, TORCH) == world(STEP, second, TORCH, {"RANK": "0"})
    assert world(BATCH, OMPI) == world(STEP, OMPI, {"OMPI_COMM_WORLD_RANK": "0"})
    assert world({}) == world({})  # the same process


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    plan = example_plan(
        launch="script",
        run_dir=str(tmp_path),
        checkpoint_dir=str(tmp_path / "checkpoints"),
        data=DataSet(),
        scratch_path=None,
    )
    (tmp_path / "plan.json").write_text(plan_to_json(plan))
    return {"SBTRAIN_PLAN": str(tmp_path / "plan.json"), "SBTRAIN_ATTEMPT": "2", **STEP}


def test_the_plan_says_the_rest(environ: dict[str, str], tmp_path: Path) -> None:
    environ |= {"SLURM_NODEID": "1", "SBTRAIN_DATA": "/a:/b"}
    found = trainer_context(environ, Defaults(checkpoint_folder=Path("unused")))
    assert (found.rank, found.world_size, found.role_index, found.node) == (3, 4, 3, 1)
    assert (found.attempt, found.steps, found.batch_per_worker) == (2, 200, 32)
    assert found.checkpoint_folder == tmp_path / "checkpoints"
    assert not found.is_chief
    assert trainer_context(
        {**environ, "SLURM_PROCID": "0"}, Defaults(checkpoint_folder=Path("unused"))
    ).is_chief


def test_a_launched_trainer_says_its_world_and_passes_signals_on(
    environ: dict[str, str],
) -> None:
    played = PlayedSupervisor()
    port = int(played.address.rpartition(":")[2])
    environ |= {"SBTRAIN_CONTROL": candidate_addresses(port), "SBTRAIN_TOKEN": "t"}
    context = trainer_context(environ, Defaults(checkpoint_folder=Path("unused")))
    reports = Reports(context)
    reports.open(gate=StepGate(), on_stop=lambda _: None)
    try:
        played.accept()
        assert played.hear() == Hello(
            **{"who": "trainer", "token": "t", "node": 0, "node_name": "c1", "rank": 3},
            **{"pid": os.getpid(), "world": "step 0", "size": 4},
            checkpoints=str(context.checkpoint_folder),
        )
        reports.signalled("SIGUSR1")
        assert played.hear() == Notice(node=0, signal="SIGUSR1")
    finally:
        reports.close()
        played.close()


def test_a_signal_within_a_send_is_passed_on_too() -> None:
    """Its handler runs in the thread that holds the link's lock."""
    played = PlayedSupervisor()
    hello = Hello(who="trainer", token="t", node=0, node_name="c1", rank=0, size=1)
    link = TrainerLink(address=played.address, hello=hello, gate=StepGate())
    try:
        played.accept()
        assert played.hear() == hello
        with link._lock:
            link.send_from_handler(Notice(node=0, signal="SIGTERM"))
        assert played.hear() == Notice(node=0, signal="SIGTERM")
    finally:
        link.close()
        played.close()


def test_a_node_that_cannot_reach_the_supervisor_trains_on(
    environ: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    environ |= {"SBTRAIN_CONTROL": "another-boot;127.0.0.1:9", "SBTRAIN_TOKEN": "t"}
    gate = StepGate()
    context = trainer_context(environ, Defaults(checkpoint_folder=Path("unused")))
    link = TrainerLink(
        address=context.control,
        hello=Hello(who="trainer", token="t", node=0, node_name="c1"),
        gate=gate,
        connect_limit_s=0.1,
    )
    assert gate.enter(1)
    eventually(lambda: not link.alive)
    assert gate.enter(2)
    link.close()
    assert caplog.text.count("lost the supervisor at 127.0.0.1:9") == 1


def test_programs_of_one_script_keep_their_checkpoints_apart(tmp_path: Path) -> None:
    assert checkpoints_of(tmp_path, "pretrain") == tmp_path
    assert checkpoints_of(tmp_path, "finetune") == tmp_path / "finetune"
    assert checkpoints_of(tmp_path, "pretrain") == tmp_path
    assert [path.name for path in tmp_path.iterdir()] == [PROGRAM]
    assert checkpoints_of(tmp_path / "gone", "pretrain") == tmp_path / "gone"
