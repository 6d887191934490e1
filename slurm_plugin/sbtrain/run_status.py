"""How a run stands: the user's list of runs, each run's folder, and one question to Slurm.

What the run's own ledger says is final needs no Slurm. All other runs are asked about
together: one question to slurmctld, and one to the accounting for those it has forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain.errors import SlurmError
from sbtrain.ledger import Run
from sbtrain.run_folder import PLAN_NAME
from sbtrain_jobs.checkpoint import CheckpointStore
from sbtrain_jobs.ledger import (
    END_CAUSES_FINAL,
    LEDGER_NAME,
    AttemptRecord,
    attempts,
    read_ledger,
)
from sbtrain_perf.codec import read_plan
from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.request import Layout, Plan

if TYPE_CHECKING:
    from sbtrain.slurm.client import HistoryRow, JobInfo, SlurmClient

UNKNOWN, LOST = "unknown", "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One run, or one task of an array.

    state: Slurm's word for the job while it is known, else how the run's own ledger ended;
    `unknown` where Slurm does not answer, `lost` where neither knows. problem: what is
    missing of the run's folder. took_s: from submission to the end of the last attempt,
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
    def final(self) -> bool:
        """The run's own ledger says that it will not run again."""
        return self.state in END_CAUSES_FINAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """runs: the oldest first. silence: why Slurm did not tell, empty where it did."""

    runs: tuple[RunStatus, ...]
    silence: str = ""


def overview(runs: Sequence[Run], client: SlurmClient) -> Overview:
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


def _from_folder(run: Run) -> tuple[RunStatus, ...]:
    """What the run's folder alone tells: the run, or the tasks of an array that started."""
    folder = Path(run.run_dir)
    tasks = sorted(
        (path for path in folder.glob("task-*") if (path / PLAN_NAME).is_file()),
        key=lambda path: (len(path.name), path.name),
    )
    if not tasks:
        return (_read(run, folder),)
    rows = []
    for path in tasks:
        task = path.name.removeprefix("task-")
        one = replace(
            run,
            run_id=f"{run.run_id}-{task}",
            job_id=f"{run.job_id}_{task}",
            run_dir=str(path),
        )
        rows.append(_read(one, path))
    return tuple(rows)


def _read(run: Run, folder: Path) -> RunStatus:
    status = RunStatus(
        run_id=run.run_id,
        job_id=run.job_id,
        run_dir=run.run_dir,
        workload=run.workload,
        submitted=run.submitted,
        state=UNKNOWN,
    )
    try:
        plan = read_plan(folder / PLAN_NAME)
        records = attempts(read_ledger(folder / LEDGER_NAME))
    except SbtrainError as error:
        return replace(status, problem=error.message)
    last = records[-1] if records else None
    final = last is not None and last.cause in END_CAUSES_FINAL
    return replace(
        status,
        state=last.cause if last is not None and final else UNKNOWN,
        partition=plan.partition,
        nodes=plan.nodes,
        layout=plan.layout,
        servers=plan.servers,
        steps=plan.steps,
        attempts=records,
        saved_step=_saved_step(plan),
        predicted_s=plan.prediction.total_s,
        took_s=_seconds(run.submitted, last.ended_at) if last is not None and final else None,
        metrics=_metrics(folder),
    )


def _saved_step(plan: Plan) -> int | None:
    """The newest checkpoint that is there in full size; hashes are not read."""
    store = CheckpointStore(plan.checkpoint_dir)
    try:
        return next((s for s in reversed(store.steps()) if store.published(s)), None)
    except SbtrainError:
        return None


def _metrics(folder: Path) -> dict[str, float] | None:
    try:
        data = json.loads((folder / "final/result.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(data, dict):
        return None
    return {str(k): float(v) for k, v in data.items() if isinstance(v, int | float)}


def _seconds(begin: str, end: str) -> float | None:
    try:
        passed = datetime.fromisoformat(end) - datetime.fromisoformat(begin)
    except (ValueError, TypeError):
        return None
    return passed.total_seconds()


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
        began = datetime.fromisoformat(status.submitted).timestamp()
        took_s = max(job.end_time_s - began, 0.0)
    return replace(status, state=str(job.state), reason=reason, took_s=took_s)


def _with_history(status: RunStatus, rows: Sequence[HistoryRow]) -> RunStatus:
    own = [row for row in rows if row.job_id == status.job_id]
    if not own:
        last = status.attempts[-1] if status.attempts else None
        if last is not None and "cancelled" in last.notices and not last.requeued:
            return replace(status, state="cancelled")  # killed before it wrote its end
        return replace(status, state=LOST, reason="Slurm no longer knows the job")
    return replace(status, state=str(own[-1].state), reason=own[-1].reason)
