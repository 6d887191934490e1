"""From a call to a decision: the queue is reckoned with, and the user's word counts."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path

import pytest

from fake_slurm import FakeSlurm
from fake_slurm_cluster import fake_node, fake_partition
from sbtrain.errors import SlurmMissingError, SlurmTimeoutError
from sbtrain.options.argv import split_command_line
from sbtrain.options.flag_table import FLAGS
from sbtrain.options.script import Script
from sbtrain.sites.tiers import BY_TIERS, pushing_aside
from sbtrain.slurm.client import PartitionAccess, PartitionInfo, QueuedJob
from sbtrain.slurm.cluster_config import ClusterConfig
from sbtrain.slurm.gres import read_gres
from sbtrain.slurm.kept_answers import AGAIN_S, QUEUE_S, STATE_S
from sbtrain.slurm.user_limits import UserLimits, read_limits
from sbtrain.submission.additions import additions
from sbtrain.submission.planning import Planned, decide
from sbtrain.submission.read_call import Surroundings, read_call
from sbtrain_perf.errors import PlanError, RequestError
from sbtrain_perf.request import Plan

PLAIN = b"#!/bin/sh\n"


def outcome(*words: str, slurm: FakeSlurm | None, tmp_path: Path) -> Planned:
    line = split_command_line(["--train-site=private", *words, "train.sh"], FLAGS)
    script = Script(name="train.sh", folder=tmp_path, content=PLAIN, shown="train.sh")
    environ = {"SBTRAIN_HOME": tempfile.mkdtemp(dir=tmp_path)}  # nothing is kept there yet
    around = Surroundings(cwd=tmp_path, environ=environ, stdin=lambda: b"")
    return decide(read_call(line, around, script), around, slurm)


def chosen(found: Planned) -> Plan:
    assert found.decision.chosen is not None
    return found.decision.chosen


def test_of_what_sbatch_decides_nobody_says_that_it_was_chosen(tmp_path: Path) -> None:
    words = ("--train-launch=script", "--train-samples=60000")
    plan = chosen(outcome(*words, slurm=FakeSlurm(), tmp_path=tmp_path))
    assert plan.reason.startswith("predicted to take ")
    assert plan.reason.endswith("partition and nodes are as sbatch has them")
    opened = chosen(outcome(*words, "--train-nodes=1", slurm=FakeSlurm(), tmp_path=tmp_path))
    assert opened.reason.startswith("best trade of predicted time and cost")


def test_an_idle_queue_changes_nothing(tmp_path: Path) -> None:
    alone = chosen(outcome("--train-steps=1000", slurm=None, tmp_path=tmp_path))
    asked = chosen(outcome("--train-steps=1000", slurm=FakeSlurm(), tmp_path=tmp_path))
    assert (asked.partition, asked.nodes) == (alone.partition, alone.nodes)
    assert asked.prediction.queue_s == 0


def test_the_queue_is_not_asked_about_where_nothing_is_open(tmp_path: Path) -> None:
    slurm = FakeSlurm()
    slurm.fail_next("queue", SlurmTimeoutError("asked"))
    words = ("-p", "spot", "-N2", "--train-steps=100")
    plan = chosen(outcome(*words, slurm=slurm, tmp_path=tmp_path))
    assert (plan.partition, plan.nodes) == ("spot", 2)
    with pytest.raises(SlurmTimeoutError, match="asked"):
        slurm.queue()


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


def test_a_queue_that_is_not_told_is_said_and_nothing_else_is_lost(tmp_path: Path) -> None:
    slurm = FakeSlurm()
    slurm.fail_next("queue", SlurmTimeoutError("no answer"))
    found = in_one_home(slurm=slurm, tmp_path=tmp_path)
    assert chosen(found).cluster == "played"
    assert found.warnings == ("the queue is not reckoned with: no answer",)


def test_a_partition_that_slurm_does_not_have_is_left_out(tmp_path: Path) -> None:
    slurm = FakeSlurm(partitions=[fake_partition("standard", "c[1-4]", default=True)])
    words = ("--train-steps=1000", "--train-objective=time")
    found = outcome(*words, slurm=slurm, tmp_path=tmp_path)
    assert chosen(found).partition == "standard"
    (warning,) = found.warnings
    assert "partitions.urgent: Slurm has no such partition" in warning


def test_the_site_of_another_cluster_is_for_looking_at(tmp_path: Path) -> None:
    slurm = FakeSlurm(partitions=[fake_partition("other", "c[1-4]", default=True)])
    found = outcome("--train-steps=1000", slurm=slurm, tmp_path=tmp_path)
    assert chosen(found).partition == "other"
    assert "partitions.standard: Slurm has no such partition" in found.warnings[0]
    words = ("--train-steps=1000", "--train-explain")
    found = outcome(*words, slurm=slurm, tmp_path=tmp_path)
    assert chosen(found).partition == "standard"  # of the others one preempts, one is preempted
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("tier", "mode", "nodes", "pushes"),
    [
        (10, "REQUEUE", "c[1-4]", True),
        (10, "GANG,SUSPEND", "c[3-4]", True),
        (10, "CANCEL", "g[1-4]", False),
        (1, "REQUEUE", "c[1-4]", False),
        (10, "OFF", "c[1-4]", False),
        (10, "GANG", "c[1-4]", False),
        (10, "REQUEUE", "(null)", False),
    ],
)
def test_who_pushes_aside_is_known_from_slurms_tiers(
    tier: int, mode: str, nodes: str, pushes: bool
) -> None:
    weak = dataclasses.replace(
        fake_partition("spot", "c[1-4]", preempt_mode=mode), nodes=nodes, priority_tier=1
    )
    one = fake_partition("prod", "c[1-8]", tier=tier)
    assert pushing_aside([weak, one], BY_TIERS) == (
        frozenset({"prod"}) if pushes else frozenset()
    )


SITE = """\
name = "two"
shared_gb_s = 1
shared_client_gb_s = 1
[partitions.calm]
nodes = 4
cores_per_node = 4
memory_gib_per_node = 15
[partitions.prod]
nodes = 4
cores_per_node = 64
memory_gib_per_node = 15
"""


def on_two(*words: str, slurm: FakeSlurm | None, tmp_path: Path) -> Planned:
    (tmp_path / "two.toml").write_text(SITE)
    site = f"--train-site={tmp_path}/two.toml"
    return outcome(*words, site, "--train-steps=1000", slurm=slurm, tmp_path=tmp_path)


def test_nobody_is_pushed_aside_who_slurms_tiers_say_would_be(tmp_path: Path) -> None:
    """The site file does not know; whoever names the partition has it."""
    calm = fake_partition("calm", "c[1-4]", default=True, preempt_mode="REQUEUE")
    prod = fake_partition("prod", "c[1-4]", tier=10)
    slurm = FakeSlurm(partitions=[calm, prod])
    assert chosen(on_two(slurm=None, tmp_path=tmp_path)).partition == "prod"
    found = on_two(slurm=slurm, tmp_path=tmp_path)
    assert chosen(found).partition == "calm"
    (row,) = [row for row in found.decision.rows if row.partition == "prod"]
    assert "pushes running jobs of others aside" in (row.rejected or "")
    named = on_two("--partition=prod", slurm=slurm, tmp_path=tmp_path)
    assert chosen(named).partition == "prod"
    asked = on_two("--train-objective=time", slurm=slurm, tmp_path=tmp_path)
    assert chosen(asked).partition == "prod"
    assert "prod pushes running jobs of others aside" in asked.decision.risks


def test_what_slurm_starts_nowhere_is_for_sbatch_to_judge_and_said(tmp_path: Path) -> None:
    def warning_of(*words: str, slurm: FakeSlurm) -> str:
        found = outcome("--train-steps=1000", *words, slurm=slurm, tmp_path=tmp_path)
        assert found.decision.chosen
        (warning,) = found.warnings
        assert warning.endswith("sbatch decides")
        return warning

    nowhere = warning_of("--nodelist=nowhere", slurm=FakeSlurm())
    why = "it does not hold all nodes of --nodelist"
    assert nowhere.startswith(f"no partition starts such a job (standard: {why}; spot: ")
    assert "your jobs may take 1 h at most" in warning_of("-t", "90", slurm=Limited())
    refused = outcome("--train-steps=9", "-t", "20000", slurm=FakeSlurm(), tmp_path=tmp_path)
    assert refused.decision.chosen is None
    assert refused.warnings == ()


def test_many_partitions_that_are_closed_to_the_job_are_one_line(tmp_path: Path) -> None:
    main = fake_partition("main", "c[1-4]", default=True)
    access = PartitionAccess(accounts=("others",))
    labs = [
        dataclasses.replace(fake_partition(f"lab{at}", "g[1-4]"), access=access)
        for at in range(30)
    ]
    slurm = FakeSlurm(partitions=[main, *labs])
    (warning,) = in_one_home(slurm=slurm, tmp_path=tmp_path).warnings
    assert warning == (
        "lab0, lab1, lab2 and 27 more partitions take no such job and are left out: "
        "--train-explain says why of each"
    )
    explained = in_one_home("--train-explain", slurm=slurm, tmp_path=tmp_path).warnings
    assert len(explained) == 30
    around = at_home(tmp_path)
    asked = in_one_home(slurm=slurm, tmp_path=tmp_path).asked
    first, _ = decide(asked, around, slurm, closed={"lab9": "sbatch refused"}).warnings
    assert first == "lab9 is left out: sbatch refused"


def test_where_the_first_choice_can_never_run_the_next_one_is_taken(tmp_path: Path) -> None:
    """Of a run that does not resume, which is kept off spot while anything else fits."""
    partitions = [fake_partition("standard", "c[1-4]", default=True)]
    partitions += [fake_partition("spot", "g[1-8]"), fake_partition("urgent", "c[1-4]")]
    slurm = FakeSlurm(partitions=partitions)
    found = outcome("-w", "g1", "--train-steps=1000", slurm=slurm, tmp_path=tmp_path)
    assert chosen(found).partition == "spot"
    why = "is left out: it does not hold all nodes of --nodelist"
    assert found.warnings[1:] == (f"standard {why}", f"urgent {why}")
    assert "partitions.spot.nodes: 8, Slurm has 4" in found.warnings[0]


@pytest.mark.parametrize(
    ("words", "partition", "nodes"),
    [
        (("-x", "c1,c[2-3]", "-N2"), "spot", 2),
        (("-x", "c1,c[2-3]"), "standard", 1),
        (("-x", "c9"), "standard", 4),
    ],
)
def test_excluded_nodes_are_not_planned_with(
    words: tuple[str, ...], partition: str, nodes: int, tmp_path: Path
) -> None:
    slurm = FakeSlurm(
        partitions=[fake_partition("standard", "c[1-4]"), fake_partition("spot", "g[1-8]")]
    )
    found = outcome(*words, "--train-steps=1000", slurm=slurm, tmp_path=tmp_path)
    assert (chosen(found).partition, chosen(found).nodes) == (partition, nodes)


def test_a_partition_whose_jobs_may_have_no_node_takes_none(tmp_path: Path) -> None:
    none = dataclasses.replace(fake_partition("standard", "c[1-4]", default=True), max_nodes=0)
    slurm = FakeSlurm(partitions=[none, fake_partition("spot", "g[1-8]")])
    found = outcome("--train-steps=1000", slurm=slurm, tmp_path=tmp_path)
    assert chosen(found).partition == "spot"
    assert "standard is left out: its jobs may have no node (MaxNodes)" in found.warnings


@pytest.mark.parametrize("words", [(), ("-p", "standard", "-N1")])
def test_the_default_time_of_a_partition_is_said_where_the_run_takes_longer(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    """By Slurm's word, also where nothing else is asked of it, else by the site file's."""

    def said(*more: str, slurm: FakeSlurm | None) -> list[str]:
        found = outcome(*words, *more, slurm=slurm, tmp_path=tmp_path)
        return [risk for risk in found.decision.risks if "ask for no time" in risk]

    long = "--train-steps=60000"
    for slurm in (FakeSlurm(), None):
        (risk,) = said(long, slurm=slurm)
        assert "standard gives jobs that ask for no time 30 min" in risk
        assert "--time" in risk
        assert said(long, "-t", "7-0", slurm=slurm) == []
        assert said("--train-steps=10", slurm=slurm) == []
    none = dataclasses.replace(fake_partition("standard", "c[1-4]"), default_time_s=None)
    other = dataclasses.replace(none, default_time_s=3600)
    assert said(long, slurm=FakeSlurm(partitions=[none])) == []
    (risk,) = said(long, slurm=FakeSlurm(partitions=[other]))
    assert "no time 1 h" in risk


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


def test_a_script_that_runs_once_is_told_what_it_may_lose_where_that_is_known(
    tmp_path: Path,
) -> None:
    def risks(*words: str) -> str:
        words = ("--train-launch=script", "--train-objective=time", *words)
        return " ".join(outcome(*words, slurm=FakeSlurm(), tmp_path=tmp_path).decision.risks)

    long = "--train-steps=60000"
    assert "ask for no time 30 min" in risks(long, "-p", "standard")
    assert "ask for no time" not in risks("-p", "standard")  # nothing says how long it is
    spot = risks(long, "-p", "spot")
    assert "a preempted run begins anew, if the cluster requeues it" in spot
    assert "not requeued" not in spot
    assert "ends there, it is not requeued" in risks(long, "-p", "spot", "--no-requeue")


@pytest.mark.parametrize("script", ["train.sh", "train.py"])
def test_of_a_cluster_that_says_nothing_nothing_is_made_up(script: str, tmp_path: Path) -> None:
    """No site file, and Slurm has never answered: partition and nodes are sbatch's."""
    slurm = FakeSlurm()
    slurm.fail_next("partitions", SlurmTimeoutError("no answer"))
    around = Surroundings(
        cwd=tmp_path, environ={"SBTRAIN_HOME": str(tmp_path / "home")}, stdin=lambda: b""
    )
    (tmp_path / script).write_text("#!/bin/sh\nsrun true\n" if script == "train.sh" else "1\n")
    line = split_command_line(["-p", "gpu", "--train-steps=9", str(tmp_path / script)], FLAGS)
    found = decide(read_call(line, around), around, slurm)
    assert found.warnings == ("no answer; nothing is predicted, and sbatch decides",)
    plan = chosen(found)
    added = additions(found.asked, plan)
    assert not [word for word in added.directives + added.words if "--partition" in word]
    assert not [word for word in added.directives + added.words if "--nodes=" in word]
    assert "--partition=gpu" in plan.sbatch_options


class Changing(FakeSlurm):
    """Whose partitions change; keeps count of how often it was asked about them."""

    asked = 0

    def partitions(self) -> tuple[PartitionInfo, ...]:
        self.asked += 1
        return super().partitions()

    def change(self, one: PartitionInfo) -> None:
        self._cluster.partitions[one.name] = one


def at_home(tmp_path: Path) -> Surroundings:
    conf = tmp_path / "slurm.conf"
    if not conf.exists():
        conf.write_text("ClusterName=played\nPreemptType=preempt/partition_prio\n")
    environ = {"SBTRAIN_HOME": f"{tmp_path}/home", "SLURM_CONF": str(conf)}
    return Surroundings(cwd=tmp_path, environ=environ, stdin=lambda: b"")


def in_one_home(*words: str, slurm: FakeSlurm, tmp_path: Path) -> Planned:
    """On what Slurm says alone, with what was kept of the calls before."""
    around = at_home(tmp_path)
    line = split_command_line(["--train-steps=20", *words, "train.sh"], FLAGS)
    script = Script(name="train.sh", folder=tmp_path, content=PLAIN, shown="train.sh")
    return decide(read_call(line, around, script), around, slurm)


def pass_time(tmp_path: Path, seconds: float) -> None:
    (kept,) = (tmp_path / "home").glob("slurm-*.json")
    said = json.loads(kept.read_text())
    older = {key: at - seconds for key, at in said.items() if key.endswith("_at_s")}
    kept.write_text(json.dumps(said | older))


def test_a_partition_that_is_new_is_found_and_a_strange_one_is_for_sbatch_to_judge(
    tmp_path: Path,
) -> None:
    slurm = Changing()
    in_one_home(slurm=slurm, tmp_path=tmp_path)
    pass_time(tmp_path, QUEUE_S)
    slurm.change(fake_partition("fresh", "c[1-3]"))
    found = in_one_home("-p", "fresh", slurm=slurm, tmp_path=tmp_path)
    assert chosen(found).partition == "fresh"
    assert slurm.asked == 2
    found = in_one_home("-p", "strange", slurm=slurm, tmp_path=tmp_path)
    assert "--partition=strange" in chosen(found).sbatch_options
    assert not [
        one for one in additions(found.asked, chosen(found)).words if "partition" in one
    ]
    (warning,) = found.warnings
    assert warning.endswith("nothing is predicted, and sbatch decides")
    with pytest.raises(RequestError, match="has no partition 'strange'"):
        in_one_home("-p", "strange", "--train-explain", slurm=slurm, tmp_path=tmp_path)


def test_a_partition_that_was_closed_is_found_so_within_the_hour(
    tmp_path: Path,
) -> None:
    slurm = Changing()
    best = chosen(in_one_home(slurm=slurm, tmp_path=tmp_path)).partition
    slurm.change(dataclasses.replace(slurm.partitions()[0], name=best, up=False))
    slurm.asked = 0
    pass_time(tmp_path, STATE_S - 60)
    assert chosen(in_one_home(slurm=slurm, tmp_path=tmp_path)).partition == best
    assert slurm.asked == 0
    pass_time(tmp_path, 60)
    assert chosen(in_one_home(slurm=slurm, tmp_path=tmp_path)).partition != best
    assert slurm.asked == 1


@pytest.mark.parametrize("sign", ["refused", "waiting"])
def test_a_sign_that_a_partition_was_closed_has_slurm_asked_at_once(
    sign: str, tmp_path: Path
) -> None:
    waiting = list[QueuedJob]()

    class Waiting(Changing):
        def queue(self) -> tuple[QueuedJob, ...]:
            return tuple(waiting)

    slurm = Waiting()
    best = chosen(in_one_home(slurm=slurm, tmp_path=tmp_path)).partition
    slurm.change(dataclasses.replace(slurm.partitions()[0], name=best, up=False))
    slurm.asked = 0
    pass_time(tmp_path, AGAIN_S)
    if sign == "waiting":
        waiting.append(QueuedJob(partition=best, node_count=1, reason="PartitionDown"))
        assert chosen(in_one_home(slurm=slurm, tmp_path=tmp_path)).partition != best
        in_one_home(slurm=slurm, tmp_path=tmp_path)
    else:
        asked = in_one_home(slurm=slurm, tmp_path=tmp_path).asked
        assert slurm.asked == 0
        environ = {"SBTRAIN_HOME": f"{tmp_path}/home", "SLURM_CONF": f"{tmp_path}/slurm.conf"}
        around = Surroundings(cwd=tmp_path, environ=environ, stdin=lambda: b"")
        decide(asked, around, slurm, closed={"other": "refused"})
    assert slurm.asked == 1


def test_a_node_with_fewer_gpus_than_are_planned_is_no_node_for_them(tmp_path: Path) -> None:
    """Of the two kinds the one with four is down."""
    big = dataclasses.replace(fake_node("g1"), gres=read_gres("gpu:h100:4"))
    small = dataclasses.replace(fake_node("g2"), gres=read_gres("gpu:h100:2"))
    slurm = FakeSlurm(
        nodes=[fake_node("c1"), big, small],
        partitions=[
            fake_partition("cpu", "c1", default=True),
            fake_partition("gpus", "g[1-2]"),
        ],
    )
    slurm.lose_node("g1")
    found = in_one_home("--train-objective=time", slurm=slurm, tmp_path=tmp_path)
    assert chosen(found).gpus_per_node == 0
    assert "gpus:H100 is left out" in " ".join(found.warnings)


def test_where_memory_was_refused_only_more_of_it_helps(tmp_path: Path) -> None:
    wide = dataclasses.replace(fake_node("w1"), memory_mib=64_000)
    nodes = [*(fake_node(f"c{at}") for at in range(1, 5)), fake_node("d1"), wide]
    parts = [fake_partition("cpu", "c[1-4]", default=True), fake_partition("same", "d1")]
    said = "sbatch refused: Memory specification can not be satisfied"

    def after(closed: dict[str, str], slurm: FakeSlurm) -> str:
        asked = in_one_home(slurm=slurm, tmp_path=tmp_path).asked
        return chosen(decide(asked, at_home(tmp_path), slurm, closed=closed)).partition

    slurm = FakeSlurm(nodes=nodes, partitions=parts)
    assert after({"cpu": "sbatch refused: Invalid qos"}, slurm) == "same"
    assert after({"cpu": said}, slurm) == "cpu"  # and so its refusal holds
    pass_time(tmp_path, STATE_S)
    slurm = FakeSlurm(nodes=nodes, partitions=[*parts, fake_partition("wide", "w1")])
    assert after({"cpu": said}, slurm) == "wide"
    assert after({"cpu": said, "wide": said}, slurm) in {"cpu", "wide"}


class Queued(FakeSlurm):
    """Jobs without a time limit hold all nodes of cpu."""

    held = "c[1-4]"

    def queue(self) -> tuple[QueuedJob, ...]:
        return (QueuedJob(partition="cpu", nodes=self.held, node_count=4),)


def test_where_nobody_can_say_how_long_it_waits_what_starts_now_is_taken(
    tmp_path: Path,
) -> None:
    cpu, slow = fake_partition("cpu", "c[1-4]", default=True), fake_partition("slow", "g1")
    nodes = [fake_node(f"c{at}") for at in range(1, 5)] + [fake_node("g1", cpus=1)]
    words = ("--train-objective=time", "--train-steps=9000")
    slurm = Queued(nodes=nodes, partitions=[cpu, slow])
    free = FakeSlurm(nodes=nodes, partitions=[cpu, slow])
    assert chosen(in_one_home(*words, slurm=free, tmp_path=tmp_path)).partition == "cpu"
    pass_time(tmp_path, QUEUE_S)
    found = in_one_home(*words, slurm=slurm, tmp_path=tmp_path)
    assert chosen(found).partition == "slow"
    told = "nobody can say when nodes of cpu come free"
    assert found.warnings == (f"{told}: what can start is taken",)
    pass_time(tmp_path, QUEUE_S)
    named = in_one_home(*words, "-p", "cpu", slurm=slurm, tmp_path=tmp_path)
    assert chosen(named).partition == "cpu"
    assert chosen(named).prediction.queue_s == 0
    assert named.warnings == (f"{told}: planned as if they were",)
    pass_time(tmp_path, QUEUE_S)
    slurm.held = "c[1-3]"
    fewer = in_one_home(*words, "-p", "cpu", slurm=slurm, tmp_path=tmp_path)
    assert (chosen(fewer).partition, chosen(fewer).nodes) == ("cpu", 1)


@pytest.mark.parametrize(
    ("constraint", "gpu", "nodes"),
    [("", None, 4), ("a100", "A100", 3), ("v100", "V100", 1), ("a100|v100", None, 4)],
)
def test_a_feature_that_is_asked_for_tells_the_gpus_that_the_job_gets(
    constraint: str, gpu: str | None, nodes: int, tmp_path: Path
) -> None:
    """Where GRES is untyped, and the nodes of one partition hold several types."""
    held = {"n1": "a100", "n2": "a100", "n3": "a100", "n4": "v100"}
    slurm = FakeSlurm(
        nodes=[
            dataclasses.replace(fake_node(name), gres=read_gres("gpu:4"), features=(feature,))
            for name, feature in held.items()
        ],
        partitions=[fake_partition("main", "n[1-4]", default=True)],
    )
    words = ["--train-steps=900", *([f"-C{constraint}"] if constraint else [])]
    found = in_one_home(*words, slurm=slurm, tmp_path=tmp_path)
    (partition,) = found.shape.partitions
    assert partition.gpu is not None
    known = partition.gpu.name if partition.gpu.known else None
    assert (known, partition.nodes) == (gpu, nodes)
    assert partition.gpus_per_node == 4


def test_a_partition_without_as_many_nodes_of_each_feature_as_asked_for_is_left_out(
    tmp_path: Path,
) -> None:
    nodes = [
        dataclasses.replace(fake_node(name), features=(feature,))
        for name, feature in (("c1", "r1"), ("c2", "r2"), ("g1", "r2"), ("g2", "r2"))
    ]
    mixed = fake_partition("mixed", "c[1-2]", default=True)
    slurm = FakeSlurm(nodes=nodes, partitions=[fake_partition("alike", "g[1-2]"), mixed])
    found = in_one_home("-C", "[r1*1&r2*1]", "-N2", slurm=slurm, tmp_path=tmp_path)
    assert chosen(found).partition == "mixed"
    why = "no node of it can run the job with r1, which 1 must have"
    assert found.warnings == (f"alike is left out: {why}",)
    found = in_one_home("-C", "[r1|r2]", "-N2", slurm=slurm, tmp_path=tmp_path)
    assert found.warnings == ()


class Memory(FakeSlurm):
    """Whose jobs get all of a node's memory unless they ask for less."""

    def config(self) -> ClusterConfig:
        return dataclasses.replace(super().config(), all_memory=True)


@pytest.mark.parametrize(
    ("changes", "words", "partition"),
    [
        ({"max_memory_mib": 8_000}, (), "wide"),
        ({"max_memory_mib": 8_000}, ("--mem=4G",), "narrow"),
        ({"max_memory_mib": 8_000, "default_memory": True}, (), "narrow"),
        ({"max_memory_mib": 16_000}, (), "narrow"),
        ({}, (), "narrow"),
    ],
)
def test_a_job_is_not_sent_where_its_memory_would_be_too_much(
    changes: dict[str, object], words: tuple[str, ...], partition: str, tmp_path: Path
) -> None:
    """Slurm would let it wait for ever."""
    narrow = dataclasses.replace(fake_partition("narrow", "c[1-4]", default=True), **changes)
    wide = dataclasses.replace(fake_partition("wide", "c[1-2]"), max_time_s=3600)
    slurm = Memory(partitions=[narrow, wide])
    words = ("--train-steps=90", "--train-objective=time", "-N1", "-t60", *words)
    assert chosen(outcome(*words, slurm=slurm, tmp_path=tmp_path)).partition == partition


class Limited(FakeSlurm):
    """Whose accounting lets the user's jobs have two nodes for an hour."""

    def config(self) -> ClusterConfig:
        return dataclasses.replace(super().config(), limits=True)

    def limits(self, cluster: str) -> UserLimits:
        assert cluster == "played"
        return read_limits("team|||small|small|node=2|01:00:00|\n", "", "small|||||||\n")


def test_no_more_nodes_are_planned_than_the_accounting_allows(tmp_path: Path) -> None:
    words = ("--train-samples=60000", "--train-objective=time")
    free = outcome(*words, slurm=FakeSlurm(), tmp_path=tmp_path)
    assert chosen(free).nodes > 2
    found = outcome(*words, slurm=Limited(), tmp_path=tmp_path)
    assert chosen(found).nodes <= 2
    assert found.warnings == ()
    asked = outcome(*words, "-N4", slurm=Limited(), tmp_path=tmp_path)
    assert chosen(asked).nodes == 4  # sbatch says what is wrong with it


class Ranked(FakeSlurm):
    """Which preempts by QOS; the accounting limits nobody."""

    def config(self) -> ClusterConfig:
        return dataclasses.replace(super().config(), preempt_type="qos")

    def limits(self, cluster: str) -> UserLimits:
        qos = "urgent||||||low,idle|00:00:00\nlow|||||||00:00:20\nnormal|||||||00:00:00\n"
        qos += "idle|||||||00:00:00\n"
        return read_limits("team|||normal,low,urgent|normal|||node=1\n", "", qos)


@pytest.mark.parametrize("mode", ["REQUEUE", "OFF"])
@pytest.mark.parametrize(
    ("words", "preemptible", "grace_s"),
    [
        ((), False, 0),
        (("--qos=low",), True, 20),
        (("-q", "urgent"), False, 0),
        (("-q", "idle"), True, 0),
        (("-q", "not-known"), True, 0),
    ],
)
def test_where_slurm_preempts_by_qos_it_is_the_jobs_that_counts(
    words: tuple[str, ...], mode: str, tmp_path: Path, *, preemptible: bool, grace_s: int
) -> None:
    """PreemptMode and GraceTime of its partition do not."""
    spot = dataclasses.replace(fake_partition("main", "c[1-4]"), preempt_mode=mode)
    slurm = Ranked(partitions=[dataclasses.replace(spot, grace_s=40)])
    words = ("--train-samples=60000", "--train-objective=time", *words)
    found = outcome(*words, slurm=slurm, tmp_path=tmp_path)
    assert [one.preemptible for one in found.shape.partitions] == [preemptible]
    assert chosen(found).grace_s == grace_s
    assert chosen(found).nodes > 1  # the group's limit is not enforced


def test_the_longest_time_of_the_accounting_is_said_where_the_run_takes_longer(
    tmp_path: Path,
) -> None:
    """Slurm gives a job that asks for no time as much as may be had."""
    none = dataclasses.replace(fake_partition("standard", "c[1-4]"), default_time_s=None)

    def risks(steps: str) -> list[str]:
        words, slurm = ("-A", "team", steps), Limited(partitions=[none])
        found = outcome(*words, slurm=slurm, tmp_path=tmp_path)
        return [one for one in found.decision.risks if "account or QOS" in one]

    (risk,) = risks("--train-steps=90000")
    assert risk.startswith(
        "your jobs may take 1 h in standard (account or QOS), and the run is "
    )
    assert "--time" not in risk
    assert risks("--train-steps=9") == []


def test_of_an_unknown_cluster_it_is_said_what_was_assumed_and_what_would_teach(
    tmp_path: Path,
) -> None:
    around = Surroundings(
        cwd=tmp_path, environ={"SBTRAIN_HOME": str(tmp_path / "home")}, stdin=lambda: b""
    )
    (tmp_path / "train.py").write_text("import torch\n")
    node = dataclasses.replace(fake_node("n1"), gres=read_gres("gpu:wonder:2"))
    slurm = FakeSlurm(nodes=[node], partitions=[fake_partition("main", "n1", default=True)])
    line = split_command_line(["--train-steps=900", str(tmp_path / "train.py")], FLAGS)
    found = decide(read_call(line, around), around, slurm)
    said = " ".join(found.decision.notes)
    assert "how fast a wonder is" in said
    assert "most of the interval is for training steps" in said
    assert "links" not in said  # of one node
    known = chosen(outcome("--train-steps=900", slurm=None, tmp_path=tmp_path)).prediction
    wide = chosen(found).prediction
    assert wide.spread.step > 1.2 * known.spread.step
    assert wide.spread.checkpoint > 2 * known.spread.checkpoint


def call(*words: str, tmp_path: Path, slurm: FakeSlurm, **environ: str) -> Planned:
    """Without a site file of the test's own."""
    (tmp_path / "train.py").write_text("import torch\n")
    home = {"SBTRAIN_HOME": tempfile.mkdtemp(dir=tmp_path), "HOME": str(tmp_path)}
    around = Surroundings(cwd=tmp_path, environ={**home, **environ}, stdin=lambda: b"")
    line = split_command_line([*words, "--train-steps=9", str(tmp_path / "train.py")], FLAGS)
    return decide(read_call(line, around), around, slurm)


@pytest.mark.parametrize("words", [("-M", "other"), ()])
def test_of_another_cluster_sbatch_decides(words: tuple[str, ...], tmp_path: Path) -> None:
    environ = {} if words else {"SLURM_CLUSTERS": "other"}
    found = call(*words, "-p", "gpu", tmp_path=tmp_path, slurm=FakeSlurm(), **environ)
    (warning,) = found.warnings
    assert warning.endswith("which is not asked; nothing is predicted, and sbatch decides")
    assert "--partition=gpu" in chosen(found).sbatch_options
    with pytest.raises(PlanError, match="nothing is known of the cluster"):
        call(*words, "--train-explain", tmp_path=tmp_path, slurm=FakeSlurm(), **environ)


def test_a_file_of_one_key_makes_up_no_cluster_either(tmp_path: Path) -> None:
    (tmp_path / "one.toml").write_text("shared_gb_s = 5\n")
    slurm = FakeSlurm()
    slurm.fail_next("partitions", SlurmTimeoutError("no answer"))
    site = f"--train-site={tmp_path}/one.toml"
    found = call(site, tmp_path=tmp_path, slurm=slurm)
    assert found.warnings == ("no answer; nothing is predicted, and sbatch decides",)
    known = call(site, tmp_path=tmp_path, slurm=FakeSlurm())
    assert known.warnings == ()
    assert known.shape.shared_bytes_s == 5e9


def test_an_own_file_does_not_mix_with_the_site_of_another_cluster(tmp_path: Path) -> None:
    own = tmp_path / ".config/sbtrain/site.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[partitions.standard]\nprice_per_node_hour = 3\n")
    words = ("--train-site=bluewaters", "--train-explain")
    found = call(*words, tmp_path=tmp_path, slurm=FakeSlurm())
    assert [one.name for one in found.shape.partitions] == ["xe", "xk"]
    assert found.warnings == ()


def test_what_is_explained_is_what_would_be_done(tmp_path: Path) -> None:
    """Also where an own file names partitions that are gone."""
    own = tmp_path / ".config/sbtrain/site.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[partitions.gone]\nnodes = 9\ncores_per_node = 1\n")
    for words in ((), ("--train-explain",)):
        found = call(*words, tmp_path=tmp_path, slurm=FakeSlurm())
        assert "partitions.gone: Slurm has no such partition" in found.warnings[0]
        assert chosen(found).partition == "standard"
