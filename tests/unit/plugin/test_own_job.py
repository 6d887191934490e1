"""Which job an attempt takes for its own: Slurm's word of SLURM_JOB_ID, whatever else the
environment holds of jobs around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from fake_slurm import FakeSlurm
from plans import example_plan
from sbtrain.errors import SlurmTimeoutError
from sbtrain.slurm.client import JobInfo, Submission
from sbtrain.slurm.own_job import OwnJobControl, own_job
from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.record.ledger import Ledger, LedgerEntry
from sbtrain_jobs.run_folder import RunFolder
from sbtrain_jobs.slurm_job import SlurmJob
from sbtrain_perf.request import Plan

LEAKED = {
    "SLURM_ARRAY_JOB_ID": "85",
    "SLURM_ARRAY_TASK_ID": "3",
    "SLURM_ARRAY_TASK_COUNT": "1",
    "SLURM_RESTART_COUNT": "25",
    "SLURM_JOB_START_TIME": "1000",
}


class Slurm:
    """A Slurm of which the clock stands still, and the job of a plan in it."""

    def __init__(self, folder: Path) -> None:
        self.now_s = 50_000.0
        self.client = FakeSlurm(now=lambda: self.now_s)
        self.plan = example_plan(run_dir=str(folder))
        self.warnings: list[str] = []

    def submit(self, *options: str, token: str = "") -> str:
        script = "#!/bin/sh\nsleep 600\n"
        options = ("--nodes=2", *options)
        submission = Submission(options=options, script_text=script, token=token)
        job_id = self.client.submit(submission).job_id
        self.client.jobs()
        return job_id

    def own(
        self,
        number: str,
        plan: Plan | None = None,
        *,
        batch_script: bool = True,
        **environ: str,
    ) -> SlurmJob:
        return own_job(
            plan or self.plan,
            self.client,
            {
                "SLURM_JOB_ID": number,
                "SLURM_JOB_NODELIST": "rack[1-2]n[3-4]",
                **environ,
            },
            batch_script=batch_script,
            now_s=self.now_s + 5,
            warn=self.warnings.append,
        )

    def silent(self) -> None:
        self.client.fail_next("jobs_by_id", SlurmTimeoutError("Slurm does not answer squeue"))


@pytest.fixture
def slurm(tmp_path: Path) -> Slurm:
    return Slurm(tmp_path)


def test_what_belongs_to_a_job_around_it_is_not_believed(slurm: Slurm) -> None:
    job = slurm.own(slurm.submit(), **LEAKED)
    assert (job.job_id, job.array_task, job.restart_count) == ("1", "", 0)
    assert job.nodes == ("rack1n3", "rack1n4")  # of the four it has, the plan uses two
    assert job.started_s == slurm.now_s
    assert slurm.warnings == []


@pytest.mark.parametrize(("number", "job_id"), [("1", "1_2"), ("2", "1_5")])
def test_an_array_task_goes_by_its_own_number(slurm: Slurm, number: str, job_id: str) -> None:
    """The first task has the number of the whole array, which requeues every task."""
    assert slurm.submit("--array=2,5") == "1"
    job = slurm.own(number, **LEAKED)
    assert (job.job_id, job.array_task) == (job_id, job_id[-1])


def test_restarts_are_those_that_slurm_and_the_environment_agree_on(slurm: Slurm) -> None:
    number = slurm.submit()
    slurm.client.requeue(number)
    slurm.now_s += 60
    slurm.client.jobs()
    assert slurm.own(number, SLURM_RESTART_COUNT="1").restart_count == 1
    assert slurm.own(number, SLURM_RESTART_COUNT="25").restart_count == 1
    # Requeued again before the first attempt could look: Slurm's count is one ahead.
    assert slurm.own(number).restart_count == 0


def test_a_job_of_others_is_not_taken_for_ones_own(slurm: Slurm) -> None:
    """In the shell of an allocation, or of another run's job."""
    for number in (slurm.submit(), slurm.submit(token="another-run")):
        with pytest.raises(LaunchError, match=f"not the batch script of job {number}") as no:
            slurm.own(number, batch_script=False)
        assert no.value.hint.endswith("/job.sh")


def test_a_job_that_was_submitted_for_the_run_is_its_own(slurm: Slurm) -> None:
    """In a container the batch script's process has another number."""
    number = slurm.submit(token=slurm.plan.run_id)
    assert slurm.own(number, batch_script=False).job_id == number


@pytest.mark.parametrize("number", ["", "85_3", "x"])
def test_outside_a_job(slurm: Slurm, number: str) -> None:
    with pytest.raises(LaunchError, match="this is not a Slurm job"):
        slurm.own(number)


def test_a_job_with_too_few_nodes(slurm: Slurm) -> None:
    with pytest.raises(LaunchError, match=r"the job has 1 node \(c1\), the plan needs 2"):
        slurm.own(slurm.submit(), SLURM_JOB_NODELIST="c1")


class TestWhileSlurmIsSilent:
    def test_only_the_plans_own_array_is_believed(self, slurm: Slurm) -> None:
        array = dataclasses.replace(slurm.plan, sbatch_options=("--nodes=2", "--array=0-9"))
        for plan, job_id in ((slurm.plan, "86"), (array, "85_3")):
            slurm.silent()
            job = slurm.own("86", plan, **LEAKED)
            assert (job.job_id, job.restart_count) == (job_id, 0)
            assert job.started_s == slurm.now_s + 5
        assert len(slurm.warnings) == 2
        assert "Slurm does not answer squeue" in slurm.warnings[0]

    def test_a_job_that_slurm_does_not_know(self, slurm: Slurm) -> None:
        assert slurm.own("86", **LEAKED).job_id == "86"
        assert "it knows no job 86" in slurm.warnings[0]

    @pytest.mark.parametrize("task", ["", "3"])
    def test_no_more_restarts_than_the_ledger_has_attempts(
        self, slurm: Slurm, task: str
    ) -> None:
        options = ("--array=0-9",) if task else ()
        plan = dataclasses.replace(slurm.plan, sbatch_options=options)
        folder = RunFolder.of(plan).task(task) if task else RunFolder.of(plan)
        folder.make()
        own = "85_3" if task else "86"
        for attempt, job_id in enumerate((own, own, "12")):
            Ledger(folder.ledger).append(
                LedgerEntry(event="started", attempt=attempt, at="now", job_id=job_id)
            )
        for said, restarts in (("2", 2), ("25", 2), ("1", 1)):
            slurm.silent()
            job = slurm.own("86", plan, **{**LEAKED, "SLURM_RESTART_COUNT": said})
            assert (job.job_id, job.restart_count) == (own, restarts)

    def test_a_job_of_others_is_not_taken_for_ones_own(self, slurm: Slurm) -> None:
        slurm.silent()
        with pytest.raises(LaunchError, match="not the batch script of job 86"):
            slurm.own("86", batch_script=False)


@pytest.mark.parametrize("task", ["", "3"])
def test_two_jobs_do_not_run_one_plan(slurm: Slurm, task: str) -> None:
    options = ("--array=3",) if task else ()
    plan = dataclasses.replace(slurm.plan, sbatch_options=options)
    first, second = slurm.submit(*options), slurm.submit(*options)
    assert slurm.own(first, plan).array_task == task
    folder = RunFolder.of(plan).task(task) if task else RunFolder.of(plan)
    folder.make()
    ledger = Ledger(folder.ledger)
    name = f"{first}_3" if task else first
    ledger.append(LedgerEntry(event="started", attempt=0, at="now", job_id=name))
    with pytest.raises(LaunchError, match=f"job {name} runs .* now .running.: two jobs") as no:
        slurm.own(second, plan)
    assert f"scancel {name}" in no.value.hint
    slurm.own(first, plan)  # the same job, requeued
    slurm.client.cancel(first)
    slurm.now_s += 60
    assert slurm.own(second, plan).restart_count == 0


def test_where_slurm_does_not_say_whether_another_job_runs_it_is_not_risked(
    slurm: Slurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = slurm.submit(), slurm.submit()
    RunFolder.of(slurm.plan).make()
    ledger = Ledger(RunFolder.of(slurm.plan).ledger)
    ledger.append(LedgerEntry(event="started", attempt=0, at="now", job_id=first))
    asked, answer = [], slurm.client.jobs_by_id

    def once(job_ids: Sequence[str]) -> tuple[JobInfo, ...]:
        asked.append(job_ids)
        if len(asked) == 2:
            raise SlurmTimeoutError("Slurm does not answer squeue")
        return answer(job_ids)

    monkeypatch.setattr(slurm.client, "jobs_by_id", once)
    with pytest.raises(LaunchError, match=f"whether job {first} still runs") as no:
        slurm.own(second)
    assert no.value.hint
    assert asked == [[second], [first]]


def test_an_attempt_that_ended_is_not_asked_about(slurm: Slurm) -> None:
    first, second = slurm.submit(), slurm.submit()
    RunFolder.of(slurm.plan).make()
    ledger = Ledger(RunFolder.of(slurm.plan).ledger)
    for event in ("started", "ended"):
        ledger.append(LedgerEntry(event=event, attempt=0, at="now", job_id=first))
    assert slurm.own(second).job_id == second


def test_a_run_touches_its_own_job_alone(slurm: Slurm) -> None:
    own, other = slurm.submit(), slurm.submit()
    control = OwnJobControl(
        client=slurm.client, job=slurm.own(own, SLURM_JOB_NODELIST="c[1-2]")
    )
    assert control.end_cause(own) == "none"
    calls = (control.requeue, control.end_cause, control.forbid_requeue, control.awaited)
    for call in calls:
        with pytest.raises(ValueError, match=f"job {other} is not this run's"):
            call(other)
    control.requeue(own)
    assert control.end_cause(own) == "requeued"
    restarts = {job.job_id: job.restarts for job in slurm.client.jobs()}
    assert restarts == {own: 1, other: 0}


def test_lost_nodes_of_an_attempt_that_left_no_end_are_named(slurm: Slurm) -> None:
    number = slurm.submit()
    ledger = Ledger(RunFolder.of(slurm.plan).ledger)
    assert slurm.own(number).down == ()
    began = LedgerEntry(event="started", attempt=0, at="now", job_id=number, nodes="c[1-3]")
    ledger.append(began)
    assert slurm.own(number).down == ()  # the supervisor alone was killed
    for lost in ("c2", "g1"):
        slurm.client.lose_node(lost)
    assert slurm.own(number).down == ("c2",)
    slurm.client.fail_next("nodes", SlurmTimeoutError("Slurm does not answer scontrol"))
    assert slurm.own(number).down == ()
    ledger.append(dataclasses.replace(began, event="ended", cause="failed"))
    assert slurm.own(number).down == ()
