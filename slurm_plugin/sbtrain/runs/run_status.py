"""How a run stands: the user's list of runs, each run's folder, and one question to Slurm.

What the run's own ledger says is final needs no Slurm. All other runs are asked about
together: one question to slurmctld, and one to the accounting for those it has forgotten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain.errors import SlurmError
from sbtrain.runs.run_list import ListedRun, find_run
from sbtrain.slurm.client import task_numbers
from sbtrain_jobs.record.ledger import (
    END_CAUSES_FINAL,
    AttemptRecord,
    attempts,
    read_ledger,
    seconds_between,
)
from sbtrain_jobs.run_folder import RunFolder, plan_of_task
from sbtrain_jobs.training.checkpoint import CheckpointStore
from sbtrain_jobs.wire.messages import EXIT_STOPPED
from sbtrain_perf.codec import decode, read_plan
from sbtrain_perf.errors import RequestError, SbtrainError
from sbtrain_perf.request import Layout, Plan

if TYPE_CHECKING:
    from sbtrain.slurm.client import HistoryRow, JobInfo, SlurmClient

UNKNOWN, LOST = "unknown", "lost"
_ARRAY = "--array="


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One run, or one task of an array.

    state: Slurm's word for the job while it is known, else how the run's own ledger ended;
    `unknown` where Slurm does not answer, `lost` where neither knows. problem: what of the
    run's folder is missing or damaged. took_s: from submission to the end of the last attempt,
    None until then. saved_step: of the newest published checkpoint.
    """

    run_id: str
    job_id: str
    run_dir: str
    workload: str
    submitted: str
    state: str
    reason: str = ""
    partition: str = ""
    nodes: int = 0
    layout: Layout | None = None
    servers: int = 0
    steps: int = 0
    attempts: tuple[AttemptRecord, ...] = ()
    saved_step: int | None = None
    predicted_s: float | None = None
    took_s: float | None = None
    metrics: dict[str, float] | None = None
    problem: str = ""

    @property
    def folder(self) -> RunFolder:
        return RunFolder(path=Path(self.run_dir))

    @property
    def final(self) -> bool:
        """The run's own ledger says that it will not run again."""
        return self.state in END_CAUSES_FINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """runs: the oldest first. silence: why Slurm did not tell, empty where it did."""

    runs: tuple[RunStatus, ...]
    silence: str = ""


def overview(runs: Sequence[ListedRun], client: SlurmClient) -> Overview:
    """How all these runs stand."""
    found = tuple(status for run in runs for status in _from_folder(run))
    asked = [status for status in found if not status.final]
    if not asked:
        return Overview(runs=found)
    try:
        known = _ask(asked, client)
    except SlurmError as error:
        return Overview(runs=found, silence=error.message)
    return Overview(runs=tuple(known.get(status.run_id, status) for status in found))


def named_run(name: str, runs: Sequence[ListedRun]) -> ListedRun:
    """The run of this run id or job id; of a task's, the task alone, started or not.

    Raises:
        RequestError: there is no such run, or the run has no such task.
        PlanError: whether it has cannot be told without the run's plan.
    """
    run, task = find_run(name, runs)
    if not task:
        return run
    one = _task_of(run, task)
    if task.isdecimal() and one.folder.plan.is_file():
        return one
    plan = read_plan(run.folder.plan)
    said = [word for word in plan.sbatch_options if word.startswith(_ARRAY)]
    numbers = task_numbers(said[-1].removeprefix(_ARRAY)) if said else set()
    if task not in map(str, numbers):
        raise RequestError(
            f"job {run.job_id} has no array task {task!r}",
            hint=f"sbtrainctl status {run.job_id} shows what it has",
        )
    return one


def plan_of(run: ListedRun) -> Plan:
    """The run's plan; of an array's task that has not started, as it will be.

    Raises:
        PlanError: it is missing or not a plan.
    """
    of = run.folder.task_of()
    if of is not None and not os.path.lexists(run.folder.plan):
        array, task = of
        return plan_of_task(read_plan(array.plan), task)
    return read_plan(run.folder.plan)


def _from_folder(run: ListedRun) -> tuple[RunStatus, ...]:
    """What the run's folder alone tells: the run, or the tasks of an array that started."""
    tasks = [task for task, folder in run.folder.tasks().items() if folder.plan.is_file()]
    return tuple(_read(_task_of(run, task)) for task in tasks) or (_read(run),)


def _task_of(run: ListedRun, task: str) -> ListedRun:
    """An array's task as a run of its own."""
    return replace(
        run,
        run_id=f"{run.run_id}-{task}",
        job_id=f"{run.job_id}_{task}",
        run_dir=str(run.folder.task(task).path),
    )


def _read(run: ListedRun) -> RunStatus:
    status = RunStatus(
        run_id=run.run_id,
        job_id=run.job_id,
        run_dir=run.run_dir,
        workload=run.workload,
        submitted=run.submitted,
        state=UNKNOWN,
    )
    try:
        plan = plan_of(run)
        records = attempts(read_ledger(run.folder.ledger))
    except SbtrainError as error:
        return replace(status, problem=error.message)
    last = records[-1] if records else None
    final = last is not None and last.cause in END_CAUSES_FINAL
    metrics, problem = _metrics(run.folder.result)
    return replace(
        status,
        state=last.cause if last is not None and final else UNKNOWN,
        partition=plan.partition,
        nodes=plan.nodes,
        layout=plan.layout,
        servers=plan.servers,
        steps=plan.steps if plan.steps_known else 0,
        attempts=records,
        saved_step=_saved_step(plan),
        predicted_s=plan.prediction.total_s if plan.steps_known else None,
        took_s=seconds_between(run.submitted, last.ended_at) if last and final else None,
        metrics=metrics,
        problem=problem,
    )


def _saved_step(plan: Plan) -> int | None:
    """The newest checkpoint that is there in full size; hashes are not read."""
    store = CheckpointStore(plan.checkpoint_dir)
    try:
        return next((s for s in reversed(store.steps()) if store.published(s)), None)
    except SbtrainError:
        return None


def _metrics(path: Path) -> tuple[dict[str, float] | None, str]:
    """What the run reported, and what is wrong with the file that says it."""
    try:
        return decode(dict[str, float], json.loads(path.read_text(encoding="utf-8"))), ""
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"cannot read the result {path}: {error.strerror}"
    except UnicodeDecodeError:
        return None, f"the result {path} is damaged: not UTF-8 text"
    except (ValueError, RecursionError) as error:
        return None, f"the result {path} is damaged: {error}"


def _ask(asked: Sequence[RunStatus], client: SlurmClient) -> Mapping[str, RunStatus]:
    jobs = client.jobs_by_id([status.job_id for status in asked])
    known: dict[str, RunStatus] = {}
    forgotten = []
    for status in asked:
        job = _job_of(status, jobs)
        if job is None:
            forgotten.append(status)
        else:
            known[status.run_id] = _with_job(status, job)
    if forgotten:
        rows = client.history([status.job_id for status in forgotten])
        past = rows if isinstance(rows, tuple) else ()
        for status in forgotten:
            known[status.run_id] = _with_history(status, past)
    return known


def _job_of(status: RunStatus, jobs: Sequence[JobInfo]) -> JobInfo | None:
    """The job itself; of an array whose tasks have not started, the record of all."""
    answering = [job for job in jobs if job.answers_to(status.job_id)]
    exact = [job for job in answering if job.job_id == status.job_id]
    return next(iter(exact or answering), None)


def _with_job(status: RunStatus, job: JobInfo) -> RunStatus:
    reason = job.reason if job.reason not in ("", "None") else ""
    took_s = status.took_s
    if job.over and job.end_time_s is not None and job.submit_time_s is not None:
        ended = datetime.fromtimestamp(job.end_time_s, UTC).isoformat()
        took_s = seconds_between(status.submitted, ended)
        took_s = None if took_s is None else max(took_s, 0.0)
    return replace(status, state=str(job.state), reason=reason, took_s=took_s)


def _comes_back(ended: AttemptRecord) -> bool:
    """Whether the attempt ended so that Slurm has, or will have, put the job back."""
    return ended.requeued or ended.exit_code == EXIT_STOPPED


def _with_history(status: RunStatus, rows: Sequence[HistoryRow]) -> RunStatus:
    own = [row for row in rows if row.job_id == status.job_id]
    if not own:
        last = status.attempts[-1] if status.attempts else None
        if last is not None and "cancelled" in last.notices and not last.requeued:
            return replace(status, state="cancelled")  # killed before it wrote its end
        if last is not None and last.ended_at and not _comes_back(last):
            return replace(
                status,
                state=last.cause,
                reason="as its own ledger says; Slurm no longer knows the job",
                took_s=seconds_between(status.submitted, last.ended_at),
            )
        return replace(status, state=LOST, reason="Slurm no longer knows the job")
    return replace(status, state=str(own[-1].state), reason=own[-1].reason)
