"""How runs stand: each run's folder, and what Slurm says of all of them.

Slurm is asked about those that their own ledger does not call over, and those that ended
lately, which may have been put back by hand.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain.runs.named_run import array_tasks, plan_of, task_of
from sbtrain.runs.run_list import ListedRun
from sbtrain.runs.slurm_answers import Answers, Question, ask, looked_closer
from sbtrain.runs.standing import (
    GONE,
    LOST,
    UNKNOWN,
    SlurmSays,
    Standing,
    recorded_end,
    standing,
)
from sbtrain_jobs.hostlist import compress
from sbtrain_jobs.record.ledger import AttemptRecord, attempts, read_ledger, seconds_between
from sbtrain_jobs.run_folder import RunFolder
from sbtrain_jobs.training.checkpoint import CheckpointStore
from sbtrain_perf.codec import decode
from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.request import Layout, Plan

if TYPE_CHECKING:
    from sbtrain.slurm.client import SlurmClient

_ASKED_FOR_S = 86_400.0  # after an end; slurmctld forgets jobs before that
# Of an array's tasks the first of these that one is in is the array's.
_TELLING = (
    *("running", "completing", "suspended", "configuring", UNKNOWN, "pending", LOST, GONE),
    *("failed", "launch-failed", "out_of_memory", "node_fail", "timeout", "time-limit"),
    *("requeue-cap", "preempted", "cancelled", "completed"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """Those of an array that are in one state. numbers: such as 0-3,7."""

    state: str
    count: int
    numbers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One run, or one task of an array.

    state, reason: see standing.py; of an array that of its most telling tasks. tasks: of an
    array, the most telling first. going: the last attempt has its nodes. over: nothing
    of it is to come. problem: what of the run's folder is missing or damaged. took_s: from
    submission to the end, None until then. saved_step: of the newest published checkpoint.
    """

    run_id: str
    job_id: str
    run_dir: str
    workload: str
    submitted: str
    state: str = UNKNOWN
    reason: str = ""
    going: bool = False
    over: bool = False
    tasks: tuple[Tasks, ...] = ()
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """runs: the oldest first. silence: why Slurm did not tell, empty where it did."""

    runs: tuple[RunStatus, ...]
    silence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One job of a run, with what its ledger holds."""

    question: Question
    attempts: tuple[AttemptRecord, ...] = ()

    def stands(self, answers: Answers) -> Standing:
        return standing(self.attempts, answers.says.get(self.question.job_id, SlurmSays()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What a run's folder alone tells. jobs: one, or one for each of an array's tasks."""

    status: RunStatus
    jobs: tuple[_Job, ...]
    tasks: tuple[int, ...] = ()


def overview(
    runs: Sequence[ListedRun],
    client: SlurmClient,
    *,
    closely: bool = False,
    now: Callable[[], float] = time.time,
) -> Overview:
    """How all these runs stand.

    Args:
        closely: name lost nodes and who cancelled, which may take two questions a run more.
    """
    found = [_read(run) for run in runs]
    jobs = [job for one in found for job in one.jobs]
    since = datetime.fromtimestamp(now() - _ASKED_FOR_S, UTC).isoformat()
    answers = ask([job.question for job in jobs if _may_change(job, since)], client)
    if closely:
        single = [one.jobs[0] for one in found if not one.tasks]
        answers = _closer(answers, single, client)
    silence = answers.silence
    if all(job.stands(answers).over for job in jobs):
        silence = ""  # nothing hung on it
    return Overview(runs=tuple(_with_slurm(one, answers) for one in found), silence=silence)


def _may_change(job: _Job, since: str) -> bool:
    end = recorded_end(job.attempts[-1] if job.attempts else None)
    if end is None or not end.over:
        return True
    ago_s = seconds_between(since, end.ended_at)
    return ago_s is None or ago_s > 0


def _closer(answers: Answers, jobs: Sequence[_Job], client: SlurmClient) -> Answers:
    says = dict(answers.says)
    for job in jobs:
        job_id, last = job.question.job_id, job.attempts[-1] if job.attempts else None
        known = says.get(job_id)
        if known is None or known.silence:
            continue
        lost = last is not None and not last.ended_at and not job.stands(answers).going
        nodes = last.nodes if last is not None and lost else ""
        says[job_id] = looked_closer(known, nodes, job_id, client)
    return replace(answers, says=says)


def _with_slurm(one: _Read, answers: Answers) -> RunStatus:
    stands = [job.stands(answers) for job in one.jobs]
    if not one.tasks:
        return _standing_so(one.status, stands[0])
    return _summed_up(one.status, dict(zip(one.tasks, stands, strict=True)))


def _standing_so(status: RunStatus, how: Standing) -> RunStatus:
    state, reason = how.state, how.reason
    if state == GONE and status.problem:
        state, reason = LOST, "Slurm no longer knows the job"
    took_s = seconds_between(status.submitted, how.ended_at) if how.over else None
    return replace(
        status,
        state=state,
        reason=reason,
        going=how.going,
        over=how.over,
        took_s=None if took_s is None else max(took_s, 0.0),
    )


def _summed_up(status: RunStatus, tasks: Mapping[int, Standing]) -> RunStatus:
    """An array in one: over when all its tasks are, with the end of the last of them."""
    order = {state: place for place, state in enumerate(_TELLING)}
    states = sorted({how.state for how in tasks.values()}, key=lambda one: order.get(one, 0))
    numbers = {
        state: [number for number, how in tasks.items() if how.state == state]
        for state in states
    }
    first = tasks[numbers[states[0]][0]]
    whole = Standing(
        state=first.state,
        reason=first.reason if len(states) == 1 else "",
        over=all(how.over for how in tasks.values()),
        ended_at=max(how.ended_at for how in tasks.values()),
    )
    groups = (
        Tasks(
            state=state,
            count=len(found),
            numbers=compress(f"t{number}" for number in found).lstrip("t").strip("[]"),
        )
        for state, found in numbers.items()
    )
    return replace(_standing_so(status, whole), tasks=tuple(groups))


def _read(run: ListedRun) -> _Read:
    status = RunStatus(
        run_id=run.run_id,
        job_id=run.job_id,
        run_dir=run.run_dir,
        workload=run.workload,
        submitted=run.submitted,
    )
    of = run.folder.task_of()
    run_id = run.run_id.removesuffix(f"-{of[1]}") if of else run.run_id
    try:
        plan = plan_of(run)
        status = _with_plan(status, plan)
        tasks = () if of else array_tasks(plan)
        if tasks:
            jobs = (_job(task_of(run, str(task)), run_id) for task in tasks)
            return _Read(status=status, jobs=tuple(jobs), tasks=tasks)
        job = _job(run, run_id)
    except SbtrainError as error:
        status = replace(status, problem=error.message)
        return _Read(status=status, jobs=(_submitted(run, run_id),))
    metrics, problem = _metrics(run.folder.result)
    status = replace(
        status,
        attempts=job.attempts,
        saved_step=_saved_step(plan),
        metrics=metrics,
        problem=problem,
    )
    return _Read(status=status, jobs=(job,))


def _with_plan(status: RunStatus, plan: Plan) -> RunStatus:
    return replace(
        status,
        partition=plan.partition,
        nodes=plan.nodes,
        layout=plan.layout,
        servers=plan.servers,
        steps=plan.steps if plan.steps_known else 0,
        predicted_s=plan.prediction.total_s if plan.steps_known else None,
    )


def _job(run: ListedRun, run_id: str) -> _Job:
    """The job that made the last attempt: a run's script may have been submitted again."""
    records = attempts(read_ledger(run.folder.ledger))
    job = replace(_submitted(run, run_id), attempts=records)
    job_id = (records[-1].job_id if records else "") or run.job_id
    if job_id == run.job_id:
        return job
    return replace(job, question=replace(job.question, job_id=job_id, submitted=""))


def _submitted(run: ListedRun, run_id: str) -> _Job:
    question = Question(
        job_id=run.job_id, run_id=run_id, submitted=run.submitted, cluster=run.cluster
    )
    return _Job(question=question)


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
