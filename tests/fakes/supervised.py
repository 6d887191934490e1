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
from pathlib import Path
from typing import cast, get_args

from sbtrain_jobs.ending.job_control import EndCause, WayBack
from sbtrain_jobs.errors import CommandTimeoutError
from sbtrain_jobs.supervisor import rendezvous, step_tally
from sbtrain_jobs.supervisor.supervise import supervise
from sbtrain_perf.codec import read_plan
from sbtrain_perf.errors import SbtrainError


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


def main(argv: list[str]) -> int:
    if seconds := os.environ.get("FAKE_MEET_WITHIN_S"):
        rendezvous.MEET_WITHIN_S = float(seconds)
    if seconds := os.environ.get("FAKE_BEGIN_WITHIN_S"):
        step_tally.BEGIN_WITHIN_S = float(seconds)
    try:
        return supervise(
            read_plan(argv[0]),
            argv[0],
            control=FileControl(Path(argv[1])),
            environ=dict(os.environ),
        )
    except SbtrainError as error:
        sys.stderr.write(f"sbtrain: error: {error.message}\nsbtrain: {error.hint}\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
