"""What Slurm says of many runs at once: one question to slurmctld, one to the accounting for
those that it has forgotten; and which record is whose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from sbtrain.errors import SlurmError
from sbtrain.runs.standing import SlurmSays
from sbtrain.slurm.client import HistoryRow, JobInfo, task_numbers
from sbtrain.slurm.states import JobState
from sbtrain.slurm.token import split_comment
from sbtrain_jobs.hostlist import expand
from sbtrain_perf.errors import SbtrainError

if TYPE_CHECKING:
    from sbtrain.slurm.client import SlurmClient

Row = TypeVar("Row", JobInfo, HistoryRow)

_NO_ACCOUNTING = "slurmctld has forgotten the job, and the accounting does not answer"
_CLOCKS_APART_S = 60.0
_SUBMITTED_WITHIN_S = 3600.0  # of the plan; a lost answer is looked for, for minutes


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """job_id: N, or Array_Task. run_id: of the run, or of the array. submitted: ISO 8601, or
    empty where the job is not the one that the run was submitted as."""

    job_id: str
    run_id: str
    submitted: str = ""
    cluster: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """silence: why Slurm did not tell, empty where it did."""

    says: Mapping[str, SlurmSays]
    silence: str = ""


def ask(questions: Sequence[Question], client: SlurmClient) -> Answers:
    """What Slurm says of each job, by the job's id."""
    if not questions:
        return Answers(says={})
    try:
        jobs = _by_id(client.jobs_by_id(_submissions(questions)))
    except SlurmError as error:
        silent = SlurmSays(silence="Slurm does not answer")
        return Answers(says={one.job_id: silent for one in questions}, silence=error.message)
    says = {one.job_id: _says(one, jobs) for one in questions}
    forgotten = [one for one in questions if says[one.job_id].job is None]
    silence = ""
    if forgotten:
        try:
            rows = client.history(_submissions(forgotten))
        except SlurmError as error:
            rows, silence = (), error.message
        past = _by_id(rows if isinstance(rows, tuple) else ())
        for one in forgotten:
            mine = tuple(row for row in past.get(one.job_id, ()) if _is_of(row, one))
            missing = _not_asked(one) or (silence and _NO_ACCOUNTING)
            says[one.job_id] = SlurmSays(rows=mine, silence="" if mine else missing)
    return Answers(says=says, silence=silence)


def looked_closer(says: SlurmSays, nodes: str, job_id: str, client: SlurmClient) -> SlurmSays:
    """With what costs a question more: which of these nodes are lost now, and who cancelled
    the job. What Slurm does not say stays unsaid."""
    try:
        if nodes:
            names = set(expand(nodes))
            down = (one.name for one in client.nodes() if one.lost and one.name in names)
            says = replace(says, down=tuple(down))
        if says.job is not None and says.job.state == JobState.CANCELLED:
            rows = client.history([job_id])
            past = _by_id(rows).get(job_id, ()) if isinstance(rows, tuple) else ()
            says = replace(says, rows=tuple(past))
    except SbtrainError:
        pass
    return says


def _submissions(questions: Iterable[Question]) -> list[str]:
    """Ids as sbatch printed them: one for all tasks of an array."""
    return sorted({one.job_id.partition("_")[0] for one in questions})


def _says(one: Question, jobs: Mapping[str, Sequence[JobInfo]]) -> SlurmSays:
    found = [job for job in jobs.get(one.job_id, ()) if _is_of(job, one)]
    return SlurmSays(job=found[0] if found else None)


def _not_asked(one: Question) -> str:
    return f"cluster {one.cluster} is not asked: squeue -M {one.cluster}" if one.cluster else ""


def _by_id(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        for job_id in _ids(row):
            found.setdefault(job_id, []).append(row)
    return found


def _ids(row: JobInfo | HistoryRow) -> Iterator[str]:
    """Every job that the record is of: the tasks of an array that wait share one."""
    base, _, tasks = row.job_id.partition("_")
    yield base.partition("+")[0]
    for number in task_numbers(tasks.strip("[]")):
        yield f"{base}_{number}"


def _is_of(row: JobInfo | HistoryRow, one: Question) -> bool:
    """Numbers of jobs come again, after a cluster was set up anew: a record with another
    run's mark, or without a mark and of another time, is another job's."""
    token = split_comment(row.comment)[1]
    if token or not one.submitted or row.submit_time_s is None:
        return token in ("", one.run_id)
    try:
        after_s = row.submit_time_s - datetime.fromisoformat(one.submitted).timestamp()
    except ValueError:
        return True
    # By a requeue a job is submitted anew.
    came_back = isinstance(row, HistoryRow) or row.restarts > 0
    return after_s > -_CLOCKS_APART_S and (came_back or after_s < _SUBMITTED_WITHIN_S)
