"""Which run is meant: the words by which every command takes one, or one task of an array."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace

from sbtrain.runs.run_list import ListedRun
from sbtrain.slurm.client import task_numbers
from sbtrain_jobs.run_folder import plan_of_task
from sbtrain_perf.codec import read_plan
from sbtrain_perf.errors import RequestError
from sbtrain_perf.request import Plan

METAVAR = "RUN|JOB"
HELP = (
    "the run: its id, or the first letters of it, its job's number, or 'last'; one task of an "
    "array as 12_3"
)
_ARRAY = "--array="
_MOST_NAMED = 5  # runs that a name may mean, the newest


def named_run(name: str, runs: Sequence[ListedRun]) -> ListedRun:
    """The run that a name means; of a task's, the task alone, started or not.

    A run goes by its id, its job's (of several, the newest is meant), `last`, or the beginning
    of one run's id; a task by the run's id with -N, or the job's, or `last`, with _N.

    Raises:
        RequestError: there is no such run, several are meant, or it has no such task.
        PlanError: whether it has cannot be told without the run's plan.
    """
    run, task = _found(name, runs)
    if not task:
        return run
    one = task_of(run, task)
    if task.isdecimal() and one.folder.plan.is_file():
        return one
    if task not in map(str, array_tasks(read_plan(run.folder.plan))):
        raise RequestError(
            f"job {run.job_id} has no array task {task!r}",
            hint=f"sbtrainctl status {run.job_id} shows what it has",
        )
    return one


def task_of(run: ListedRun, task: str) -> ListedRun:
    """An array's task as a run of its own."""
    return replace(
        run,
        run_id=f"{run.run_id}-{task}",
        job_id=f"{run.job_id}_{task}",
        run_dir=str(run.folder.task(task).path),
    )


def array_tasks(plan: Plan) -> tuple[int, ...]:
    """The numbers of an array's tasks, in order; none where the job is no array."""
    said = [word for word in plan.sbatch_options if word.startswith(_ARRAY)]
    return tuple(sorted(task_numbers(said[-1].removeprefix(_ARRAY)))) if said else ()


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


def _found(name: str, runs: Sequence[ListedRun]) -> tuple[ListedRun, str]:
    """The run, and the number of the task that is meant: empty for the run."""
    if not name.strip():
        raise RequestError(
            "the name of the run or job is empty",
            hint="sbtrainctl status, with no word after it, lists all runs",
        )
    if re.fullmatch(r"last(_\d+)?", name) and runs:
        name = name.replace("last", runs[-1].job_id)
    for run in reversed(runs):
        if name in (run.run_id, run.job_id):
            return run, ""
    for run in reversed(runs):
        for prefix in (f"{run.run_id}-", f"{run.job_id}_"):
            if name.startswith(prefix) and name != prefix:
                return run, name.removeprefix(prefix)
    meant = [run for run in runs if run.run_id.startswith(name)]
    if len(meant) == 1:
        return meant[0], ""
    if meant:
        newest = ", ".join(run.run_id for run in reversed(meant[-_MOST_NAMED:]))
        more = ", ..." if len(meant) > _MOST_NAMED else ""
        raise RequestError(
            f"{name!r} may mean {len(meant)} runs: {newest}{more}",
            hint="give more letters, or the job's number; 'last' is the newest of all",
        )
    raise RequestError(
        f"there is no run or job {name!r} among the {len(runs)} submitted runs",
        hint="sbtrainctl status lists them",
    )
