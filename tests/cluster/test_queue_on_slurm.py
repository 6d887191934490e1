"""What a plan knows of a real queue: against sbatch's own estimate, at the price of one
question, and where what is known has become wrong."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import clean_environ, sbtrain
from sbtrain.slurm.client import Submission
from sbtrain.slurm.command_client import CommandsClient
from sbtrain.slurm.kept_answers import QUEUE_S
from sbtrain.slurm.node_kinds import names_in
from sbtrain.submission.free_nodes import FreeNodes
from sbtrain_jobs.process import run_command

pytestmark = pytest.mark.slurm

_QUESTIONS = re.compile(r"^\s+(REQUEST_\w+)\s+\(\s*\d+\) count:(\d+)", re.M)
_OF_SUBMISSIONS = re.compile(r"JOB_INFO|PARTITION_INFO|NODE_INFO|WILL_RUN|SUBMIT|ALLOCAT")


@pytest.fixture
def environ(slurm_environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    (tmp_path / "train.sh").write_text("#!/bin/sh\nsrun sleep 600\n")
    return clean_environ(**{**slurm_environment, "SBTRAIN_HOME": str(tmp_path / "home")})


@pytest.fixture
def slurm(environ: dict[str, str]) -> Iterator[CommandsClient]:
    client = CommandsClient(environ=environ)
    yield client
    for job in client.jobs():
        if not job.over:
            client.cancel(job.submission_id)


def scontrol(*words: str, environ: dict[str, str]) -> None:
    run_command(["scontrol", *words], env=environ, timeout_s=60)


def submit(slurm: CommandsClient, *options: str) -> str:
    words = ("--output=/dev/null", "--exclusive", *options)
    text = "#!/bin/sh\nsleep 600\n"
    return slurm.submit(Submission(options=words, script_text=text)).job_id


def settled(slurm: CommandsClient, *, running: int, waiting: int) -> None:
    deadline = time.monotonic() + 90
    while True:
        queue = slurm.queue()
        nodes = sum(1 for one in queue if one.nodes)
        blocked = sum(one.in_line and one.reason != "None" for one in queue)
        if (nodes, blocked) == (running, waiting):
            return
        assert time.monotonic() < deadline, queue
        time.sleep(0.2)


@pytest.mark.parametrize(
    ("partition", "nodes", "minutes", "expected_min"),
    [
        ("standard", 1, 5, 20),  # before the waiting job has the nodes of all
        ("standard", 1, 60, 70),
        ("standard", 4, 5, 70),
        ("spot", 2, 600, 0),
        ("spot", 6, 600, 70),
        ("urgent", 5, 5, 0),  # those of spot make way
    ],
)
def test_the_reckoning_is_what_slurms_scheduler_plans(
    partition: str, nodes: int, minutes: int, expected_min: int, slurm: CommandsClient
) -> None:
    settled(slurm, running=0, waiting=0)
    submit(slurm, "-p", "standard", "-w", "c[1-2]", "-t", "20")
    submit(slurm, "-p", "spot", "-N3", "-t", "40", "-x", "c[1-2],g[2-4]")
    submit(slurm, "-p", "standard", "-N4", "-t", "30")
    settled(slurm, running=2, waiting=1)
    partitions = {one.name: one for one in slurm.partitions()}
    free = FreeNodes(tuple(partitions.values()), slurm.queue(), now_s=time.time())
    among = names_in(partitions[partition].nodes)
    wait_s = free.wait_s(partition, nodes, among=among, limit_s=60.0 * minutes)
    assert wait_s == pytest.approx(60 * expected_min, abs=60)
    number = submit(slurm, "-p", partition, f"-N{nodes}", "-t", str(minutes))
    deadline = time.monotonic() + 60
    while True:
        (job,) = slurm.jobs_by_id([number])
        planned_s = (job.start_time_s or math.inf) - time.time()
        if planned_s < wait_s + 90:
            break
        assert time.monotonic() < deadline, (planned_s, wait_s)
        time.sleep(0.5)
    assert planned_s > wait_s - 90


@pytest.mark.parametrize("way", ["script", "ranks"])
def test_a_submission_is_one_question_and_one_job(
    way: str, environ: dict[str, str], slurm: CommandsClient, tmp_path: Path
) -> None:
    def submitted() -> int:
        words = ("--parsable", "-H", f"--train-launch={way}", "--train-steps=5000")
        said = sbtrain(*words, "--train-nodes=1-4", "train.sh", cwd=tmp_path, environ=environ)
        assert said.returncode == 0, said.stderr
        return int(said.stdout)

    first = submitted()
    time.sleep(6)  # past the seconds for which the queue is kept
    run_command(["sdiag", "-r"], env=environ, timeout_s=60)
    assert submitted() == first + 1
    said = run_command(["sdiag"], env=environ, timeout_s=60).stdout
    counts = {
        name: int(n) for name, n in _QUESTIONS.findall(said) if _OF_SUBMISSIONS.search(name)
    }
    assert counts == {"REQUEST_JOB_INFO": 1, "REQUEST_SUBMIT_BATCH_JOB": 1}


def test_a_partition_that_refuses_the_job_is_passed_over(
    environ: dict[str, str], slurm: CommandsClient, tmp_path: Path
) -> None:
    """It was open when Slurm was asked last."""

    def submitted(*more: str) -> tuple[int, str, str]:
        words = ("--parsable", "-H", "--train-launch=ranks", "--train-steps=200000", *more)
        words = (*words, "--train-objective=time", "--train-nodes=5-8", "--train-layout=ps:1")
        said = sbtrain(*words, "train.sh", cwd=tmp_path, environ=environ)
        return said.returncode, said.stdout, said.stderr

    code, job_id, said = submitted()
    assert code == 0, said
    (first,) = slurm.jobs_by_id([job_id.strip()])
    other = {"urgent": "spot", "spot": "urgent"}[first.partition]
    scontrol("update", f"PartitionName={first.partition}", "ReqResv=YES", environ=environ)
    try:
        code, job_id, said = submitted()
        assert code == 0, said
        (second,) = slurm.jobs_by_id([job_id.strip()])
        assert second.partition == other
        assert f"{first.partition} is left out: sbatch refused: Batch job submission" in said
        code, _, said = submitted("-p", first.partition)
        assert code != 0
        assert "Access/permission denied" in said
        os.unlink(next((tmp_path / "home").glob("slurm-*.json")))  # noqa: PTH108
        code, job_id, said = submitted()
        assert code == 0
        assert "it takes jobs of reservations alone" in said
    finally:
        scontrol("update", f"PartitionName={first.partition}", "ReqResv=NO", environ=environ)


def test_nodes_that_run_no_jobs_are_not_planned_with(
    environ: dict[str, str], slurm: CommandsClient, tmp_path: Path
) -> None:
    def nodes() -> int:
        words = ("--train-dry-run", "--train-steps=200000", "--train-objective=time")
        words = (*words, "-p", "standard", "--train-launch=ranks", "--train-layout=ps:1")
        said = sbtrain(*words, "train.sh", cwd=tmp_path, environ=environ)
        found = re.search(r"^#SBATCH --nodes=(\d+)$", said.stdout, re.M)
        assert found, said.stderr
        return int(found[1])

    scontrol("update", "NodeName=c2", "State=DRAIN", "Reason=test", environ=environ)
    try:
        assert nodes() == 3
    finally:
        scontrol("update", "NodeName=c2", "State=RESUME", environ=environ)
    deadline = time.monotonic() + 30  # other nodes may still end what ran on them
    while True:
        os.unlink(next((tmp_path / "home").glob("slurm-*.json")))  # noqa: PTH108
        found = nodes()
        if found == 4:
            break
        assert time.monotonic() < deadline, found


def test_a_partition_that_was_made_meanwhile_takes_the_job(
    environ: dict[str, str], slurm: CommandsClient, tmp_path: Path
) -> None:
    def submitted(*more: str) -> str:
        words = ("--parsable", "-H", "--train-launch=ranks", "--train-steps=20", *more)
        said = sbtrain(*words, "train.sh", cwd=tmp_path, environ=environ)
        assert said.returncode == 0, said.stderr
        (job,) = slurm.jobs_by_id([said.stdout.strip()])
        slurm.cancel(job.job_id)
        return job.partition

    assert submitted() != "fresh"
    scontrol("create", "PartitionName=fresh", "Nodes=c[1-2]", environ=environ)
    try:
        time.sleep(QUEUE_S)
        assert submitted("-p", "fresh") == "fresh"
        strange = sbtrain("-p", "strange", "train.sh", cwd=tmp_path, environ=environ)
        assert strange.returncode == 1
        assert "invalid partition specified: strange" in strange.stderr
    finally:
        scontrol("delete", "PartitionName=fresh", environ=environ)
