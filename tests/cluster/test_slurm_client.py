"""One contract for every body of SlurmClient: the real commands against a real slurmctld, and
the Slurm in memory. Then what only a real Slurm can show."""

from __future__ import annotations

import importlib.util
import os
import re
import secrets
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fake_slurm import FakeSlurm
from sbtrain.cluster import PrivateCluster, crash_node, down, start_node, up
from sbtrain.cluster.daemons import Daemons
from sbtrain.cluster.errors import SlurmNotInstalledError
from sbtrain.cluster.folder import ClusterFolder
from sbtrain.errors import (
    SlurmMissingError,
    SlurmRejectedError,
    SlurmTimeoutError,
    SlurmUnparsableError,
)
from sbtrain.slurm.client import (
    HistoryRow,
    JobInfo,
    JobStart,
    NoAccounting,
    SlurmClient,
    Submission,
)
from sbtrain.slurm.command_client import CommandsClient
from sbtrain.slurm.pyslurm_client import PyslurmClient
from sbtrain.slurm.states import JobState
from sbtrain.slurm.text_forms import read_job_block
from sbtrain.slurm.times import read_time_limit
from sbtrain.slurm.token import Patience, split_comment
from sbtrain_jobs.hostlist import expand
from sbtrain_jobs.process import run_command
from sbtrain_perf.hardware import AskedHardware

T = TypeVar("T")
_MOST_SHOWN_S = 365 * 86_400  # squeue calls longer limits INVALID

pytestmark = pytest.mark.slurm

QUICK = Patience(look_s=0.3, settle_s=1.5, give_up_s=90.0)


def eventually(ask: Callable[[], T], *, within_s: float = 90.0) -> T:
    """The first answer that is not empty, None or False."""
    deadline = time.monotonic() + within_s
    while not (answer := ask()):
        assert time.monotonic() < deadline, f"not within {within_s:g} s"
        time.sleep(0.1)
    return answer


def a_token() -> str:
    return f"t-{secrets.token_hex(6)}"


def job(
    *lines: str, options: tuple[str, ...] = (), token: str = "", comment: str = ""
) -> Submission:
    return Submission(
        options=("--output=/dev/null", *options),
        script_text="\n".join(["#!/bin/sh", *lines, ""]),
        token=token,
        comment=comment,
    )


def only(client: SlurmClient, job_id: str) -> JobInfo:
    (found,) = client.jobs_by_id([job_id])
    return found


def reaches(
    client: SlurmClient, job_id: str, *states: JobState, within_s: float = 40
) -> JobInfo:
    eventually(lambda: only(client, job_id).state in states, within_s=within_s)
    return only(client, job_id)


class Bodies:
    """Starts clients, and cancels what they have submitted."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environ = {**os.environ, **environment}

    def commands(
        self,
        *,
        environ: dict[str, str] | None = None,
        limit_warning_s: float = 120.0,
    ) -> CommandsClient:
        return CommandsClient(
            environ={**self.environ, **(environ or {})},
            limit_warning_s=limit_warning_s,
            patience=QUICK,
        )

    def pyslurm(self) -> PyslurmClient:
        if importlib.util.find_spec("pyslurm") is None:
            pytest.skip("pyslurm is not installed")
        return PyslurmClient(environ=self.environ, patience=QUICK)

    def cancel_all(self) -> None:
        client = self.commands()
        for running in client.jobs():
            if not running.over:
                client.cancel(running.submission_id)


@pytest.fixture
def bodies(slurm_environment: dict[str, str]) -> Iterator[Bodies]:
    made = Bodies(slurm_environment)
    yield made
    made.cancel_all()


@pytest.fixture(params=["commands", "fake"])
def client(request: pytest.FixtureRequest) -> Iterator[SlurmClient]:
    if request.param == "fake":
        yield FakeSlurm(
            accounting=False, kill_wait_s=3.0, limit_warning_s=120.0, patience=QUICK
        )
        return
    made: Bodies = request.getfixturevalue("bodies")
    if request.param == "commands":
        yield made.commands()
        return
    asked = made.pyslurm()
    yield asked
    assert not asked.given_up


# pyslurm answers three questions; of all others it is the commands' body.
also_pyslurm = pytest.mark.parametrize("client", ["commands", "pyslurm", "fake"], indirect=True)


class TestContract:
    def test_version(self, client: SlurmClient) -> None:
        assert client.version().year >= 22
        assert 1 <= client.version().month <= 12

    @also_pyslurm
    def test_nodes(self, client: SlurmClient) -> None:
        nodes = {node.name: node for node in client.nodes()}
        assert sorted(nodes) == ["c1", "c2", "c3", "c4", "g1", "g2", "g3", "g4"]
        assert nodes["c1"].cpus == 4
        assert nodes["c1"].memory_mib > 1000
        assert nodes["c1"].gres == ()
        assert [(g.name, g.kind, g.count) for g in nodes["g1"].gres] == [("gpu", "k80", 2)]
        assert set(nodes["c1"].partitions) == {"standard", "spot", "urgent"}
        assert set(nodes["g1"].partitions) == {"spot", "urgent"}
        assert all(node.usable and not node.lost for node in nodes.values())

    @also_pyslurm
    def test_partitions(self, client: SlurmClient) -> None:
        partitions = {partition.name: partition for partition in client.partitions()}
        standard, spot, urgent = (partitions[name] for name in ("standard", "spot", "urgent"))
        assert [p.default for p in (standard, spot, urgent)] == [True, False, False]
        assert all(p.up for p in partitions.values())
        assert expand(standard.nodes) == ("c1", "c2", "c3", "c4")
        assert (standard.node_count, spot.node_count) == (4, 8)
        assert spot.cpu_count == 32
        assert (standard.preempt_mode, spot.preempt_mode) == ("OFF", "REQUEUE")
        assert (standard.grace_s, spot.grace_s) == (0, 15)
        assert urgent.priority_tier > spot.priority_tier
        assert standard.max_time_s == 7 * 86_400
        assert standard.default_time_s == 1800
        assert standard.max_nodes is None

    def test_a_job_runs_and_ends(self, client: SlurmClient) -> None:
        before_s = time.time()
        options = ("--job-name=a b=c", "-p", "spot", "-N", "2", "-t", "5", "--no-requeue")
        job_id = client.submit(job("sleep 3", options=options)).job_id
        assert job_id.isdecimal()
        running = reaches(client, job_id, JobState.RUNNING)
        assert running.job_id == running.submission_id == job_id
        assert (running.name, running.partition, running.node_count) == ("a b=c", "spot", 2)
        assert len(expand(running.nodes)) == 2
        assert (running.restarts, running.requeue) == (0, False)
        assert running.time_limit_s == 300
        assert running.preempt_time_s is None
        assert running.submit_time_s is not None
        assert running.start_time_s is not None
        assert running.end_time_s is not None
        assert before_s - 2 <= running.submit_time_s <= running.start_time_s
        assert running.end_time_s == pytest.approx(running.start_time_s + 300, abs=2)
        assert not running.over
        ended = reaches(client, job_id, JobState.COMPLETED)
        assert ended.over
        assert (ended.exit_code, ended.exit_signal) == (0, 0)

    def test_a_failed_job_tells_its_exit_code(self, client: SlurmClient) -> None:
        ended = reaches(client, client.submit(job("exit 3")).job_id, JobState.FAILED)
        assert ended.over
        assert (ended.exit_code, ended.exit_signal) == (3, 0)

    def test_a_script_by_path(self, client: SlurmClient, tmp_path: Path) -> None:
        path = tmp_path / "train me.sh"
        path.write_text("#!/bin/sh\n#SBATCH --comment='from the script'\nexit 0\n")
        submission = Submission(
            options=("--output=/dev/null", "--hold"),
            script=path,
            script_args=("--lr", "0.1"),
            working_dir=tmp_path,
        )
        held = only(client, client.submit(submission).job_id)
        assert held.name == "train me.sh"
        assert held.comment == "from the script"

    def test_a_waiting_job_says_why(self, client: SlurmClient) -> None:
        job_id = client.submit(job("sleep 1", options=("--hold", "-t", "0"))).job_id
        held = eventually(lambda: next(iter(client.jobs_by_id([job_id]))))
        assert (held.state, held.reason, held.nodes) == (JobState.PENDING, "JobHeldUser", "")
        assert held.time_limit_s is None
        assert held.start_time_s is None
        client.cancel(job_id)
        assert reaches(client, job_id, JobState.CANCELLED).over

    def test_jobs_that_slurm_does_not_know_are_left_out(self, client: SlurmClient) -> None:
        known = client.submit(job("sleep 1")).job_id
        assert client.jobs_by_id([]) == ()
        assert client.jobs_by_id(["999999"]) == ()
        assert [found.job_id for found in client.jobs_by_id(["999999", known])] == [known]
        assert known in {found.job_id for found in client.jobs()}

    def test_the_token_finds_the_job_and_the_own_comment_stays(
        self, client: SlurmClient
    ) -> None:
        token, own = a_token(), '{"team": "a b", "x": 1} [1]'
        job_id = client.submit(
            job("sleep 1", options=("--hold",), token=token, comment=own)
        ).job_id
        (found,) = client.find_by_token(token)
        assert found.job_id == job_id
        assert split_comment(found.comment) == (own, token)
        assert client.find_by_token(a_token()) == ()

    def test_an_array_is_found_whole_and_by_task(self, client: SlurmClient) -> None:
        token = a_token()
        array = client.submit(job("sleep 30", options=("--array=0-2",), token=token)).job_id
        eventually(lambda: len(running_tasks(client, array)) == 3)
        assert {found.job_id for found in client.jobs_by_id([array])} == {
            f"{array}_{task}" for task in range(3)
        }
        assert only(client, f"{array}_1").job_id == f"{array}_1"
        assert {found.submission_id for found in client.find_by_token(token)} == {array}
        client.requeue(f"{array}_1")
        restarts = {
            found.job_id: found.restarts
            for found in eventually(lambda: restarted(client, array))
        }
        assert restarts == {f"{array}_0": 0, f"{array}_1": 1, f"{array}_2": 0}
        client.cancel(array)
        eventually(lambda: all(found.over for found in client.jobs_by_id([array])))

    def test_cancel_is_final_and_may_be_said_twice(self, client: SlurmClient) -> None:
        job_id = client.submit(job("sleep 100")).job_id
        reaches(client, job_id, JobState.RUNNING)
        client.cancel(job_id)
        assert reaches(client, job_id, JobState.CANCELLED).over
        client.cancel(job_id)
        client.cancel("999999")

    def test_a_requeued_job_comes_back_with_its_id(self, client: SlurmClient) -> None:
        job_id = client.submit(job("sleep 30", options=("-p", "spot"))).job_id
        reaches(client, job_id, JobState.RUNNING)
        client.requeue(job_id)
        waiting = reaches(client, job_id, JobState.PENDING)
        assert (waiting.restarts, waiting.over) == (1, False)
        eventually(lambda: only(client, job_id).reason == "BeginTime", within_s=5)
        with pytest.raises(SlurmRejectedError, match="pending"):
            client.requeue(job_id)
        assert reaches(client, job_id, JobState.RUNNING, within_s=90).restarts == 1

    def test_what_cannot_be_requeued(self, client: SlurmClient) -> None:
        with pytest.raises(SlurmRejectedError, match="Invalid job id"):
            client.requeue("999999")
        job_id = client.submit(job("sleep 30", options=("--no-requeue",))).job_id
        reaches(client, job_id, JobState.RUNNING)
        with pytest.raises(SlurmRejectedError, match="disabled"):
            client.requeue(job_id)

    def test_a_requeue_can_be_forbidden_while_the_job_runs(self, client: SlurmClient) -> None:
        job_id = client.submit(job("sleep 30", options=("-p", "spot"))).job_id
        reaches(client, job_id, JobState.RUNNING)
        assert only(client, job_id).requeue
        client.forbid_requeue(job_id)
        assert not only(client, job_id).requeue
        with pytest.raises(SlurmRejectedError, match="disabled"):
            client.requeue(job_id)
        with pytest.raises(SlurmRejectedError, match="Invalid job id"):
            client.forbid_requeue("999999")

    def test_a_refusal_keeps_slurms_words_and_leaves_no_job(self, client: SlurmClient) -> None:
        token = a_token()
        with pytest.raises(SlurmRejectedError, match="invalid partition specified: nope") as no:
            client.submit(job("sleep 1", options=("-p", "nope"), token=token))
        assert no.value.hint
        assert "\n" not in no.value.message
        assert client.find_by_token(token) == ()

    def test_what_is_no_script_is_refused(self, client: SlurmClient) -> None:
        with pytest.raises(SlurmRejectedError, match="does not look like a batch script"):
            client.submit(Submission(script_text="sleep 1\n"))
        with pytest.raises(SlurmRejectedError, match=r"Unable to open file .*missing\.sh"):
            client.submit(Submission(script=Path("/nowhere/missing.sh")))

    def test_test_only_estimates_and_submits_nothing(self, client: SlurmClient) -> None:
        token = a_token()
        estimate = client.test_only(
            job("sleep 1", options=("-p", "urgent", "-N2"), token=token)
        )
        assert estimate.start_time_s == pytest.approx(time.time(), abs=30)
        assert estimate.partition == "urgent"
        assert len(expand(estimate.nodes)) == estimate.cpus == 2
        assert client.find_by_token(token) == ()
        with pytest.raises(SlurmRejectedError, match="not available"):
            client.test_only(job("sleep 1", options=("-p", "urgent", "-N99")))

    @also_pyslurm
    def test_the_queue_tells_who_holds_nodes_and_who_waits(self, client: SlurmClient) -> None:
        name = "-Jx\n\nJobId=1 JobState=PENDING Reason=None"
        runs = client.submit(job("sleep 30", options=("-p", "urgent", "-N3", name, "-t", "9")))
        running = reaches(client, runs.job_id, JobState.RUNNING)
        held = client.submit(job("sleep 1", options=("-p", "spot", "-N2", "-H", "-t", "3")))
        (holds,) = [one for one in client.queue() if one.nodes]
        assert expand(holds.nodes) == expand(running.nodes)
        assert (holds.partition, holds.node_count, holds.limit_s) == ("urgent", 3, 540)
        assert holds.ends_s == running.end_time_s
        assert not holds.in_line
        (waits,) = [one for one in client.queue() if not one.nodes]
        assert (waits.partition, waits.node_count, waits.limit_s) == ("spot", 2, 180)
        assert (waits.reason, waits.ends_s, waits.in_line) == ("JobHeldUser", None, False)
        client.cancel(held.job_id)
        client.cancel(runs.job_id)
        eventually(lambda: client.queue() == ())

    def test_no_accounting_is_an_answer_not_an_error(self, client: SlurmClient) -> None:
        assert isinstance(client.history(["1"]), NoAccounting)

    def test_end_cause_of_a_job_that_just_runs(self, client: SlurmClient) -> None:
        long = client.submit(job("sleep 60", options=("-t", "30"))).job_id
        short = client.submit(job("sleep 60", options=("-t", "1"))).job_id
        reaches(client, long, JobState.RUNNING)
        reaches(client, short, JobState.RUNNING)
        assert client.end_cause(long) == "none"
        assert client.end_cause(short) == "time-limit"
        with pytest.raises(SlurmRejectedError, match="Invalid job id"):
            client.end_cause("999999")

    def test_end_cause_tells_a_cancel_from_a_requeue(self, client: SlurmClient) -> None:
        deaf = ("trap '' TERM", *["sleep 1"] * 30)
        cancelled = client.submit(job(*deaf)).job_id
        requeued = client.submit(job(*deaf)).job_id
        first = {i: reaches(client, i, JobState.RUNNING) for i in (cancelled, requeued)}
        time.sleep(1)  # until the scripts have set their traps
        client.cancel(cancelled)
        client.requeue(requeued)
        causes = {
            job_id: client.end_cause(
                job_id, JobStart(restarts=job.restarts, nodes=expand(job.nodes))
            )
            for job_id, job in first.items()
        }
        assert causes == {cancelled: "cancelled", requeued: "requeued"}

    def test_only_ids_of_jobs_reach_slurm(self, client: SlurmClient) -> None:
        for not_an_id in ("--me", "all", "1 2", ""):
            with pytest.raises(SlurmRejectedError):
                client.requeue(not_an_id)


def running_tasks(client: SlurmClient, array: str) -> list[JobInfo]:
    return [task for task in client.jobs_by_id([array]) if task.state == JobState.RUNNING]


def restarted(client: SlurmClient, array: str) -> tuple[JobInfo, ...]:
    tasks = client.jobs_by_id([array])
    return tasks if any(task.restarts for task in tasks) else ()


ODD = "two  blanks, a\nline break; JobState=FAILED UserId=eve(0) é"


def odd_jobs(client: SlurmClient) -> Callable[[], tuple[JobInfo, ...]]:
    """Submits jobs of many kinds, with words that look like Slurm's own: how they stand."""
    first = client.submit(
        job("sleep 30", options=("--job-name=x JobState=TIMEOUT",), comment=ODD)
    )
    client.submit(job("sleep 30", options=("--array=0-199:2%1", "-t", "1-12")))
    client.submit(job("sleep 30", options=(":", "-p", "urgent", "--output=/dev/null")))
    client.submit(job("sleep 1", options=("--hold", "-N", "2-3", "-p", "spot,urgent")))
    client.submit(job("kill -9 $$"))
    reaches(client, client.submit(job("exit 7")).job_id, JobState.FAILED)
    time.sleep(1)
    return lambda: tuple(one for one in client.jobs() if one.number >= int(first.job_id))


def differences(one: object, other: object, *but: str) -> dict[str, tuple[object, object]]:
    """Fields of two values of one class that are not equal."""
    names = [field.name for field in fields(one) if field.name not in but]  # type: ignore[arg-type]
    pairs = {name: (getattr(one, name), getattr(other, name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


class TestRealSlurm:
    def test_squeue_and_scontrol_say_the_same(self, bodies: Bodies) -> None:
        client = bodies.commands()
        jobs = odd_jobs(client)()
        assert len(jobs) >= 8
        for told in jobs:
            shown = run_command(
                ["scontrol", "--all", "show", "job", str(told.number)],
                timeout_s=60,
                env={**bodies.environ, "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"},
            ).stdout
            blocks = (block for block in shown.split("\n\n") if block.startswith("JobId="))
            by_number = {one.number: one for one in map(read_job_block, blocks)}
            assert not differences(told, by_number[told.number], "comment"), told.job_id
        assert ODD in {told.comment for told in jobs}

    def test_the_users_own_defaults_change_nothing(self, bodies: Bodies) -> None:
        spoilt = bodies.commands(
            environ={
                "SQUEUE_FORMAT": "%i",
                "SQUEUE_STATES": "SUSPENDED",
                "SQUEUE_USERS": "nobody",
                "SINFO_FORMAT": "%n",
                "SLURM_TIME_FORMAT": "relative",
                "SCANCEL_INTERACTIVE": "1",
            },
        )
        job_id = spoilt.submit(job("sleep 30")).job_id
        assert reaches(spoilt, job_id, JobState.RUNNING).start_time_s is not None
        assert len(spoilt.nodes()) == 8
        spoilt.cancel(job_id)
        reaches(spoilt, job_id, JobState.CANCELLED)

    @pytest.mark.parametrize("kind", ["afterok", "afterany"])
    def test_who_waits_for_a_jobs_success_is_told(self, bodies: Bodies, kind: str) -> None:
        client = bodies.commands()
        job_id = client.submit(job("sleep 30")).job_id
        reaches(client, job_id, JobState.RUNNING)
        assert not client.awaited(job_id)
        client.submit(job("true", options=(f"--dependency={kind}:{job_id}",)))
        assert client.awaited(job_id) is (kind == "afterok")

    def test_preemption_is_told_from_inside_the_job(
        self, bodies: Bodies, tmp_path: Path
    ) -> None:
        """The job itself asks, knowing only its environment, when the signal arrives."""
        said = tmp_path / "said"
        submission, client = (
            asking_job(bodies, said, "-p", "spot", "-w", "g1"),
            bodies.commands(),
        )
        job_id = client.submit(submission).job_id
        reaches(client, job_id, JobState.RUNNING)
        eventually(lambda: said.exists() and "ready" in said.read_text())
        client.submit(job("sleep 5", options=("-p", "urgent", "-w", "g1", "--exclusive")))
        eventually(lambda: "USR1 preempted" in said.read_text())
        assert only(client, job_id).preempt_time_s is not None
        eventually(lambda: "TERM requeued" in said.read_text(), within_s=60)
        waiting = reaches(client, job_id, JobState.PENDING)
        assert waiting.restarts == 1

    def test_a_cancel_within_the_grace_is_a_cancel(
        self, bodies: Bodies, tmp_path: Path
    ) -> None:
        said = tmp_path / "said"
        client = bodies.commands()
        job_id = client.submit(asking_job(bodies, said, "-p", "spot", "-w", "g2")).job_id
        eventually(lambda: said.exists() and "ready" in said.read_text())
        client.submit(job("sleep 5", options=("-p", "urgent", "-w", "g2", "--exclusive")))
        eventually(lambda: "USR1 preempted" in said.read_text())
        time.sleep(1.5)
        client.cancel(job_id)
        eventually(lambda: "TERM cancelled" in said.read_text())

    def test_the_end_of_a_grace_without_requeue(self, bodies: Bodies, tmp_path: Path) -> None:
        said = tmp_path / "said"
        client = bodies.commands()
        options = ("-p", "spot", "-w", "g2", "--no-requeue")
        job_id = client.submit(asking_job(bodies, said, *options)).job_id
        eventually(lambda: said.exists() and "ready" in said.read_text())
        client.submit(job("sleep 5", options=("-p", "urgent", "-w", "g2", "--exclusive")))
        eventually(lambda: "TERM preempted" in said.read_text(), within_s=60)
        assert reaches(client, job_id, JobState.PREEMPTED).over

    def test_a_lost_node_is_told_from_a_requeue(
        self, bodies: Bodies, slurm_folder: Path, tmp_path: Path
    ) -> None:
        said = tmp_path / "said"
        client = bodies.commands()
        job_id = client.submit(
            asking_job(bodies, said, "-p", "spot", "-N2", "-w", "g3,g4")
        ).job_id
        eventually(lambda: said.exists() and "ready" in said.read_text())
        crash_node(slurm_folder, "g4")
        try:
            eventually(lambda: "TERM node-fail" in said.read_text(), within_s=60)
            assert not only(client, job_id).over
            assert next(node for node in client.nodes() if node.name == "g4").lost
        finally:
            start_node(slurm_folder, "g4")

    @pytest.mark.slow
    def test_the_end_of_the_time_limit_is_told(self, bodies: Bodies, tmp_path: Path) -> None:
        said = tmp_path / "said"
        client = bodies.commands(limit_warning_s=0)
        job_id = client.submit(asking_job(bodies, said, "-t", "1")).job_id
        reaches(client, job_id, JobState.TIMEOUT, within_s=150)
        assert "TERM time-limit" in said.read_text()

    def test_times_are_read_as_sbatch_reads_them(self, bodies: Bodies) -> None:
        client = bodies.commands()

        def real(value: str) -> int | None:
            job_id = client.submit(job("exit 0", options=("--hold", f"--time={value}"))).job_id
            found = only(client, job_id)
            client.cancel(job_id)
            return found.time_limit_s

        part = st.integers(0, 70).map(str)
        clock = st.lists(part, min_size=1, max_size=3).map(":".join)
        days = st.integers(0, 300).map(lambda number: f"{number}-")
        values = st.one_of(
            clock, st.tuples(days, clock).map("".join), st.text("0123:- ", max_size=6)
        )

        @settings(max_examples=60)
        @given(values.filter(bool))
        def agree(value: str) -> None:
            assume(not re.fullmatch(r"-0*[1-9]\d*", value) or value == "-1")  # nonsense
            try:
                ours = read_time_limit(value)
            except ValueError:
                with pytest.raises(SlurmRejectedError):
                    real(value)
            else:
                told = real(value)
                assert told == ours or (told is None and ours and ours > _MOST_SHOWN_S)

        agree()

    @pytest.mark.parametrize("value", ["1", "1025K", "100gb", "1T", "+1G"])
    def test_memory_counts_as_sbatch_counts_it(self, bodies: Bodies, value: str) -> None:
        submission = job("exit 0", options=("--hold", f"--mem={value}"))
        job_id = bodies.commands().submit(submission).job_id
        shown = run_command(
            ["scontrol", "show", "job", job_id], timeout_s=120, env=bodies.environ
        ).stdout
        (printed,) = (word for word in shown.split() if word.startswith("MinMemoryNode="))
        theirs = AskedHardware.of([printed.replace("MinMemoryNode", "--mem")]).memory_gib
        ours = AskedHardware.of([f"--mem={value}"]).memory_gib
        assert theirs - 1 / 1024 < ours <= theirs  # sbatch counts in whole MiB


class TestPyslurm:
    """Every field of every value that it tells, against the commands."""

    @pytest.fixture
    def bodies(self, private_slurm: PrivateCluster) -> Bodies:
        return Bodies(private_slurm.environment)

    def test_all_kinds_of_nodes_partitions_and_jobs(self, bodies: Bodies) -> None:
        commands, pyslurm = bodies.commands(), bodies.pyslurm()

        def scontrol(*words: str) -> None:
            run_command(["scontrol", *words], timeout_s=60, env=bodies.environ)

        def tell_the_same(kind: str, least: int) -> None:
            """Answered between two equal answers of the commands."""
            before, told, said = (), (), None
            while before != said:
                before, told, said = (
                    getattr(body, kind)() for body in (commands, pyslurm, commands)
                )
            for pair in zip(told, before, strict=True):
                assert not differences(*pair), pair[1]
            assert len(told) >= least

        scontrol("create", "PartitionName=hidden", "Nodes=c1", "Hidden=YES", "State=DOWN")
        scontrol("create", "PartitionName=empty", "AllowGroups=root,bin", "RootOnly=YES")
        limits = ("MaxNodes=2", "MinNodes=1", "MaxTime=UNLIMITED")
        scontrol("create", "PartitionName=limited", "Nodes=g[1-2]", *limits)
        scontrol(
            "create", "PartitionName=denied", "Nodes=g1", "DenyAccounts=a,b", "ReqResv=YES"
        )
        scontrol("update", "NodeName=c2", "State=DRAIN", "Reason=disk = full, [x@y] (z)")
        scontrol("update", "NodeName=g3", "State=DOWN", "Reason=off")
        scontrol("update", "NodeName=c3", "Features=big,fast")
        tell_the_same("partitions", 7)
        tell_the_same("nodes", 8)
        deaf = job("trap '' TERM", *["sleep 1"] * 60, options=("-p", "spot", "-N2", "-w", "c4"))
        ends = commands.submit(deaf).job_id
        stands = commands.submit(job("sleep 90", options=("-p", "limited", "-t", "0"))).job_id
        odd_jobs(commands)
        commands.submit(job("sleep 1", options=("-N8", "-p", "spot")))
        for job_id in (ends, stands):
            reaches(commands, job_id, JobState.RUNNING)
        scontrol("suspend", stands)
        time.sleep(1)  # until the script has set its trap
        commands.cancel(ends)
        tell_the_same("queue", 8)
        assert only(commands, ends).state == JobState.COMPLETING
        tell_the_same("nodes", 8)
        assert not pyslurm.given_up


def asking_job(bodies: Bodies, said: Path, *options: str) -> Submission:
    """A job whose batch script writes why it is being ended, whenever a signal comes."""
    program = (
        "import os, signal, sys, time\n"
        "from sbtrain.slurm.client import JobStart\n"
        "from sbtrain.slurm.command_client import CommandsClient\n"
        "from sbtrain_jobs.hostlist import expand\n"
        "restarts = int(os.environ.get('SLURM_RESTART_COUNT', '0'))\n"
        "start = JobStart(restarts=restarts, nodes=expand(os.environ['SLURM_JOB_NODELIST']))\n"
        f"out = open({str(said)!r}, 'a', buffering=1)\n"
        "def tell(number, frame):\n"
        "    client = CommandsClient(limit_warning_s=0)\n"
        "    cause = client.end_cause(os.environ['SLURM_JOB_ID'], start)\n"
        "    print(signal.Signals(number).name.removeprefix('SIG'), cause, file=out)\n"
        "for number in (signal.SIGUSR1, signal.SIGTERM):\n"
        "    signal.signal(number, tell)\n"
        "print('ready', file=out)\n"
        "while True:\n"
        "    time.sleep(0.1)\n"
    )
    path = os.pathsep.join(place for place in sys.path if place)
    return job(
        f"export PYTHONPATH='{path}'",
        f"exec {sys.executable} - <<'END'",
        program + "END",
        options=("--signal=B:USR1@30", "--requeue", "-t", "30", *options),
    )


def wrapper(folder: Path, name: str, *lines: str) -> None:
    """A command in front of Slurm's own, as sites have them."""
    path = folder / name
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o700)


TIMED_OUT = (
    "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
)


class TestLostAnswers:
    """Faults are injected in front of the real sbatch; the job is a real one or none."""

    @pytest.fixture
    def bin(self, tmp_path: Path) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        return folder

    @pytest.fixture
    def client(self, bodies: Bodies, bin: Path) -> CommandsClient:
        path = f"{bin}{os.pathsep}{bodies.environ['PATH']}"
        return bodies.commands(environ={"PATH": path})

    @pytest.fixture
    def sbatch(self, bodies: Bodies) -> str:
        found = shutil.which("sbatch", path=bodies.environ["PATH"])
        assert found
        return found

    def test_an_accepted_job_is_found_again(
        self, client: CommandsClient, bin: Path, sbatch: str
    ) -> None:
        wrapper(bin, "sbatch", f'{sbatch} "$@" > /dev/null', f"echo '{TIMED_OUT}' >&2; exit 1")
        token = a_token()
        submitted = client.submit(job("exit 0", token=token))
        assert submitted.found_again
        assert [found.job_id for found in client.find_by_token(token)] == [submitted.job_id]

    def test_a_job_that_never_arrived_is_submitted_again_once(
        self, client: CommandsClient, bin: Path, sbatch: str
    ) -> None:
        wrapper(
            bin,
            "sbatch",
            f'[ -e {bin}/tried ] && exec {sbatch} "$@"',
            f"touch {bin}/tried; echo '{TIMED_OUT}' >&2; exit 1",
        )
        token = a_token()
        submitted = client.submit(job("exit 0", token=token))
        assert not submitted.found_again
        assert [found.job_id for found in client.find_by_token(token)] == [submitted.job_id]

    def test_without_a_token_nothing_is_tried_twice(
        self, client: CommandsClient, bin: Path
    ) -> None:
        wrapper(bin, "sbatch", f"echo x >> {bin}/calls; echo '{TIMED_OUT}' >&2; exit 1")
        with pytest.raises(SlurmTimeoutError, match="Socket timed out"):
            client.submit(job("exit 0"))
        assert (bin / "calls").read_text() == "x\n"

    def test_what_a_sites_wrapper_prints_does_not_hide_the_id(
        self, client: CommandsClient, bin: Path, sbatch: str
    ) -> None:
        wrapper(bin, "sbatch", "echo 'auks: token 17 renewed'", f'exec {sbatch} "$@"')
        job_id = client.submit(job("exit 0")).job_id
        assert only(client, job_id).submission_id == job_id

    def test_an_answer_without_an_id_is_not_taken_for_no_job(
        self, client: CommandsClient, bin: Path, sbatch: str
    ) -> None:
        wrapper(bin, "sbatch", f'{sbatch} "$@" > /dev/null', "echo 'your job is on its way'")
        token = a_token()
        assert client.submit(job("exit 0", token=token)).found_again
        wrapper(bin, "sbatch", "echo 'your job is on its way'")
        with pytest.raises(SlurmUnparsableError, match="your job is on its way"):
            client.submit(job("exit 0", token=a_token()))

    def test_an_answer_in_another_tongue_names_the_command(
        self, client: CommandsClient, bin: Path
    ) -> None:
        wrapper(bin, "squeue", "echo 'JOBID PARTITION NAME'")
        with pytest.raises(SlurmUnparsableError, match=r"squeue.*JOBID PARTITION"):
            client.jobs()
        wrapper(bin, "scontrol", "echo 'PartitionName=p Default=YES'")
        with pytest.raises(SlurmUnparsableError, match=r"scontrol show partition.*about p"):
            client.partitions()


class TestSlurmAway:
    def test_a_controller_that_hangs_takes_the_job_once(
        self, private_slurm: PrivateCluster
    ) -> None:
        """slurmctld is stopped as a process while sbatch calls: it gives up after its ten
        seconds, but its request waits in slurmctld's queue and is worked off later."""
        client = Bodies(private_slurm.environment).commands()
        controller = controller_pid(private_slurm)
        token = a_token()
        os.kill(controller, signal.SIGSTOP)
        wake = threading.Timer(13.0, os.kill, (controller, signal.SIGCONT))
        wake.start()
        try:
            submitted = client.submit(job("sleep 60", token=token))
        finally:
            wake.cancel()
            os.kill(controller, signal.SIGCONT)
        assert submitted.found_again
        time.sleep(2)
        assert [found.job_id for found in client.find_by_token(token)] == [submitted.job_id]

    def test_a_controller_that_is_gone(self, private_slurm: PrivateCluster) -> None:
        client = Bodies(private_slurm.environment).commands()
        os.kill(controller_pid(private_slurm), signal.SIGKILL)
        begin = time.monotonic()
        with pytest.raises(
            SlurmTimeoutError, match=r"Unable to contact slurm controller|does not answer"
        ) as away:
            client.submit(job("exit 0", token=a_token()))
        assert time.monotonic() - begin < 60
        assert "scontrol ping" in away.value.hint
        patient_no_more = CommandsClient(
            environ=Bodies(private_slurm.environment).environ, query_timeout_s=1.0
        )
        with pytest.raises(SlurmTimeoutError, match="did not answer within 1 s"):
            patient_no_more.partitions()

    def test_a_configuration_that_is_gone_is_told_at_once(self, bodies: Bodies) -> None:
        client = bodies.commands(environ={"SLURM_CONF": "/nowhere/slurm.conf"})
        begin = time.monotonic()
        for call in (client.nodes, client.jobs, lambda: client.submit(job("exit 0"))):
            with pytest.raises(SlurmMissingError, match=r"/nowhere/slurm\.conf"):
                call()
        assert time.monotonic() - begin < 60


def controller_pid(cluster: PrivateCluster) -> int:
    return Daemons.of(ClusterFolder.at(cluster.folder)).running()["slurmctld"].pid


@pytest.mark.slow
class TestAccounting:
    @pytest.fixture
    def environment(self) -> Iterator[dict[str, str]]:
        place = Path(tempfile.mkdtemp(prefix="sbt-test-", dir="/tmp"))
        try:
            yield dict(up(place / "cluster", accounting=True, timeout_s=120).environment)
        except SlurmNotInstalledError as error:
            pytest.skip(f"{error.message}: {error.hint}")
        finally:
            down(place / "cluster")
            shutil.rmtree(place, ignore_errors=True)

    def test_history_has_a_row_for_every_run(self, environment: dict[str, str]) -> None:
        client = Bodies(environment).commands()
        odd = "a | b,\nJobState=X"
        job_id = client.submit(job("sleep 20", options=("-p", "spot"), comment=odd)).job_id
        array = client.submit(job("exit 4", options=("--array=1-2",))).job_id
        reaches(client, job_id, JobState.RUNNING)
        time.sleep(1)
        client.requeue(job_id)
        reaches(client, job_id, JobState.PENDING)
        client.cancel(job_id)

        def all_runs() -> tuple[HistoryRow, ...]:
            rows = client.history([job_id, f"{array}_2", "999999"])
            assert not isinstance(rows, NoAccounting)
            ended = [row.job_id for row in rows if row.state.name in {"REQUEUED", "CANCELLED"}]
            failed = [row.job_id for row in rows if row.state == JobState.FAILED]
            return rows if ended == [job_id, job_id] and failed else ()

        rows = eventually(all_runs, within_s=20)
        assert [row.job_id for row in rows] == [job_id, job_id, f"{array}_2"]
        assert [row.state for row in rows[:2]] == [JobState.REQUEUED, JobState.CANCELLED]
        first, _, task = rows
        assert (first.partition, first.node_count) == ("spot", 1)
        assert first.start_time_s is not None
        assert first.end_time_s is not None
        assert first.elapsed_s == first.end_time_s - first.start_time_s >= 1
        assert first.comment == odd  # the private cluster's site stores comments
        assert (task.state, task.exit_code) == (JobState.FAILED, 4)
