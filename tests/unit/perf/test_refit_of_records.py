"""Refit learns from what the supervisor writes: its clock, its phases, its steps."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from plans import example_plan
from sbtrain_jobs.record.run_record import RunRecord
from sbtrain_jobs.run_folder import RunFolder
from sbtrain_jobs.slurm_job import SlurmJob
from sbtrain_jobs.wire.messages import PhaseDone, StepsDone
from sbtrain_perf.measured import measure_attempts
from sbtrain_perf.timing_log import AttemptTimings, read_timing_log

STARTED_S = 1_795_000_000.0  # Unix time at which Slurm started the job


def recorded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, submitted_at: str
) -> AttemptTimings:
    """An attempt as it is told to the supervisor: staging ends 4 s after the job's start, the
    trainer is up after 15 s, its first step takes 1.5 s more than the others."""
    attempt = RunFolder(path=folder).attempt(0)
    attempt.path.mkdir(parents=True)
    job = SlurmJob(
        job_id="7",
        restart_count=0,
        nodes=("c1", "c2"),
        node_list="c[1-2]",
        started_s=STARTED_S,
    )
    plan = example_plan(run_dir=str(folder), submitted_at=submitted_at)
    record = RunRecord(plan, job, attempt=0, folder=attempt, earlier=(), lead_rank=0)
    record.start()

    def at(seconds: float) -> None:
        monkeypatch.setattr(time, "time", lambda: STARTED_S + seconds)

    at(4.0)
    record.phase("stage", 2.0, size_bytes=10**8)
    at(15.0)
    record.phase_done(PhaseDone(rank=0, name="start", seconds=3.0))
    at(40.0)
    seconds = (1.7, *[0.2] * 99)
    record.steps_done(StepsDone(rank=0, first=1, seconds=seconds, samples_per_step=32))
    record.phase_done(
        PhaseDone(rank=0, name="checkpoint", seconds=0.6, step=100, size_bytes=10**7)
    )
    record.close()
    return read_timing_log(attempt.path / "timings.h5")


@pytest.mark.parametrize("submitted_at", ["2026-11-18T10:00:00+00:00", ""])
def test_a_recorded_attempt_is_measured_as_it_went(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, submitted_at: str
) -> None:
    """Whether or not the log knows how long the job was in the queue."""
    timings = recorded(tmp_path, monkeypatch, submitted_at=submitted_at)
    assert bool(timings.named("queue")) is bool(submitted_at)
    measured = measure_attempts((timings,))
    assert measured.refused == ()
    found = {sample.term: sample.seconds for sample in measured.samples}
    assert found == {
        "stage": 2.0,
        "start": pytest.approx(15.0 - 2.0 + 1.5),
        "step": pytest.approx(0.2),
        "checkpoint": 0.6,
    }
