"""What an interrupted submission leaves: nothing, also where the job had begun to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from fake_slurm import FakeSlurm
from plans import example_plan
from sbtrain.commands import sending
from sbtrain.slurm.client import JobInfo, Submission, Submitted

RUN_ID = "digits-1"


class Interrupted(FakeSlurm):
    """Takes the job, and is interrupted before it says so; the job goes on writing into its
    run folder until it is over."""

    def __init__(self, run_dir: Path, *, kill_wait_s: float) -> None:
        super().__init__(kill_wait_s=kill_wait_s)
        self._run_dir = run_dir

    def submit(self, submission: Submission) -> Submitted:
        super().submit(submission)
        raise KeyboardInterrupt

    def find_by_token(self, token: str) -> tuple[JobInfo, ...]:
        found = super().find_by_token(token)
        (self._run_dir / "attempts" / "0").mkdir(parents=True, exist_ok=True)
        return found


@pytest.mark.parametrize("kill_wait_s", [0.0, 2.0])
def test_the_folder_goes_when_the_job_is_over(tmp_path: Path, kill_wait_s: float) -> None:
    run_dir = tmp_path / "run"
    slurm = Interrupted(run_dir, kill_wait_s=kill_wait_s)
    plan = example_plan(run_id=RUN_ID, run_dir=str(run_dir))
    sleeps = Submission(script_text="#!/bin/sh\nsleep 600\n", token=RUN_ID)
    with pytest.raises(KeyboardInterrupt):
        sending._send(slurm, plan, sleeps)
    (job,) = slurm.jobs()
    assert job.over
    assert not run_dir.exists()
