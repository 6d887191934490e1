"""From a call to a decision: the queue is reckoned with, and the user's word counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbtrain.errors import SlurmMissingError, SlurmTimeoutError
from sbtrain.options.argv import split_command_line
from sbtrain.options.flags import FLAGS
from sbtrain.options.script import Script
from sbtrain.slurm.fake_client import FakeSlurm
from sbtrain.slurm.fake_cluster import fake_partition
from sbtrain.submission.planning import Planned, Surroundings, decide, read_call
from sbtrain_perf.request import Plan

PLAIN = b"#!/bin/sh\n"


def outcome(*words: str, slurm: FakeSlurm | None, tmp_path: Path) -> Planned:
    line = split_command_line([*words, "--train-site=private", "train.sh"], FLAGS)
    script = Script(name="train.sh", folder=tmp_path, content=PLAIN, shown="train.sh")
    environ = {"SBTRAIN_HOME": str(tmp_path / "home")}
    around = Surroundings(cwd=tmp_path, environ=environ, stdin=lambda: b"")
    return decide(read_call(line, around, script), around, slurm)


def chosen(found: Planned) -> Plan:
    assert found.decision.chosen is not None
    return found.decision.chosen


def test_an_idle_queue_changes_nothing(tmp_path: Path) -> None:
    alone = chosen(outcome("--train-steps=1000", slurm=None, tmp_path=tmp_path))
    asked = chosen(outcome("--train-steps=1000", slurm=FakeSlurm(), tmp_path=tmp_path))
    assert (asked.partition, asked.nodes) == (alone.partition, alone.nodes)
    assert asked.prediction.queue_s == 0


def test_nothing_is_asked_where_nothing_is_open(tmp_path: Path) -> None:
    slurm = FakeSlurm()
    slurm.fail_next("partitions", SlurmTimeoutError("asked"))
    words = ("-p", "spot", "-N2", "--train-steps=100")
    plan = chosen(outcome(*words, slurm=slurm, tmp_path=tmp_path))
    assert (plan.partition, plan.nodes) == ("spot", 2)
    with pytest.raises(SlurmTimeoutError, match="asked"):
        slurm.partitions()


@pytest.mark.parametrize(
    ("error", "warnings"), [(SlurmMissingError, 0), (SlurmTimeoutError, 1)]
)
def test_a_silent_slurm_is_no_obstacle(
    error: type[SlurmMissingError | SlurmTimeoutError], warnings: int, tmp_path: Path
) -> None:
    slurm = FakeSlurm()
    slurm.fail_next("partitions", error("no answer"))
    found = outcome("--train-steps=100", slurm=slurm, tmp_path=tmp_path)
    assert chosen(found)
    assert len(found.warnings) == warnings


def test_a_partition_that_slurm_does_not_have_is_left_out(tmp_path: Path) -> None:
    slurm = FakeSlurm(partitions=[fake_partition("standard", "c[1-4]", default=True)])
    found = outcome("--train-steps=1000", slurm=slurm, tmp_path=tmp_path)
    assert chosen(found).partition == "standard"
    assert "urgent is left out: Slurm has no such partition" in found.warnings


def test_the_site_of_another_cluster_is_not_asked_about(tmp_path: Path) -> None:
    slurm = FakeSlurm(partitions=[fake_partition("other", "c[1-4]", default=True)])
    found = outcome("--train-steps=1000", slurm=slurm, tmp_path=tmp_path)
    assert chosen(found).partition == "urgent"
    assert found.warnings == ()


def test_what_slurm_refuses_everywhere_is_for_sbatch_to_say(tmp_path: Path) -> None:
    words = ("--train-steps=1000", "--nodelist=nowhere")
    found = outcome(*words, slurm=FakeSlurm(), tmp_path=tmp_path)
    assert found.decision.chosen
    assert found.warnings == ()


def test_a_limit_that_is_predicted_too_short_binds_with_a_warning(tmp_path: Path) -> None:
    found = outcome("--train-steps=100000", "-t", "1", slurm=None, tmp_path=tmp_path)
    assert chosen(found)
    (warning,) = found.warnings
    assert "the time limit is 1 min" in warning


def test_the_users_own_signal_is_the_plans(tmp_path: Path) -> None:
    found = outcome("--signal=B:USR2@90", "--train-steps=9", slurm=None, tmp_path=tmp_path)
    assert chosen(found).preemption_signal == "USR2"


def test_the_plan_runs_a_copy(tmp_path: Path) -> None:
    plan = chosen(outcome("--train-steps=9", slurm=None, tmp_path=tmp_path))
    assert plan.script == f"{plan.run_dir}/script/train.sh"
    assert plan.script_dir == str(tmp_path)
    assert plan.run_dir == f"{tmp_path}/.sbtrain/runs/{plan.run_id}"
    assert plan.submitted_at.endswith("+00:00")
