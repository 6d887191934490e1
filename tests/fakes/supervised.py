"""Runs the supervisor as the batch script does, with a batch system made of files:

    python supervised.py PLAN_JSON FOLDER

FOLDER/cause holds what Slurm says ("hang" and "error" stand for a slurmctld that is away);
every requeue adds a line to FOLDER/requeues, forbidding one adds one to FOLDER/forbidden;
both are refused while FOLDER/refuse exists. FOLDER/awaited: another job waits for this one.
FAKE_MEET_WITHIN_S shortens the wait for agents, FAKE_BEGIN_WITHIN_S that for first steps.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast, get_args

from sbtrain_jobs.ending.job_control import EndCause, WayBack
from sbtrain_jobs.errors import CommandTimeoutError
from sbtrain_jobs.hostlist import expand
from sbtrain_jobs.signals import end_by
from sbtrain_jobs.slurm_job import SlurmJob
from sbtrain_jobs.supervisor import rendezvous, step_tally
from sbtrain_jobs.supervisor.supervise import supervise
from sbtrain_perf.codec import read_plan
from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.request import Plan


class FileControl:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def end_cause(self, job_id: str) -> EndCause:
        path = self._folder / "cause"
        cause = path.read_text().strip() if path.exists() else "none"
        if cause == "hang":
            time.sleep(600)
        if cause == "error":
            raise CommandTimeoutError("scontrol did not answer within 5 s", argv=["scontrol"])
        assert cause in get_args(EndCause)
        return cast("EndCause", cause)

    def way_back(self) -> WayBack:
        path = self._folder / "way_back"
        way = path.read_text().strip() if path.exists() else "requeue"
        assert way in get_args(WayBack)
        return cast("WayBack", way)

    def binds_cpus(self) -> bool:
        return False

    def forbid_requeue(self, job_id: str) -> None:
        if (self._folder / "refuse").exists():
            raise SbtrainError("Access/permission denied")
        with (self._folder / "forbidden").open("a") as stream:
            stream.write(f"{job_id}\n")

    def awaited(self, job_id: str) -> bool:
        return (self._folder / "awaited").exists()

    def requeue(self, job_id: str) -> None:
        if (self._folder / "refuse").exists():
            raise SbtrainError("Requested operation is presently disabled")
        with (self._folder / "requeues").open("a") as stream:
            stream.write(f"{job_id}\n")


def job_of(plan: Plan, environ: Mapping[str, str]) -> SlurmJob:
    node_list = environ["SLURM_JOB_NODELIST"]
    task = environ.get("SLURM_ARRAY_TASK_ID", "")
    return SlurmJob(
        job_id=f"{environ['SLURM_ARRAY_JOB_ID']}_{task}" if task else environ["SLURM_JOB_ID"],
        array_task=task,
        restart_count=int(environ.get("SLURM_RESTART_COUNT", "0")),
        nodes=expand(node_list)[: plan.nodes],
        node_list=node_list,
        started_s=float(environ.get("SLURM_JOB_START_TIME", time.time())),
    )


def main(argv: list[str]) -> int:
    if seconds := os.environ.get("FAKE_MEET_WITHIN_S"):
        rendezvous.MEET_WITHIN_S = float(seconds)
    if seconds := os.environ.get("FAKE_BEGIN_WITHIN_S"):
        step_tally.BEGIN_WITHIN_S = float(seconds)
    try:
        plan = read_plan(argv[0])
        return supervise(
            plan,
            argv[0],
            job_of(plan, os.environ),
            control=FileControl(Path(argv[1])),
            environ=dict(os.environ),
        )
    except SbtrainError as error:
        sys.stderr.write(f"sbtrain: error: {error.message}\nsbtrain: {error.hint}\n")
        return error.exit_code


if __name__ == "__main__":
    if (code := main(sys.argv[1:])) < 0:
        end_by(-code)  # as the batch script does
    sys.exit(code)
