"""`sbtrain --wait`: stay until the job has ended for good, and exit as it did."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from sbtrain.errors import SlurmTimeoutError
from sbtrain.runs.standing import recorded_end
from sbtrain_jobs.record.ledger import attempts, read_ledger
from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.wording import duration

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sbtrain.slurm.client import JobInfo, SlurmClient

FIRST_LOOK_S = 2.0
LOOK_EVERY_S = 30.0  # at most one question to slurmctld in this time, once it runs long
SILENT_FOR_S = 6 * 3600.0  # longer than slurmctld is away for its maintenance


def wait_for_job(
    client: SlurmClient,
    job_id: str,
    *,
    ledger: Path,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """The job's exit code as `sbatch --wait` gives it: the highest of an array's tasks, 1
    for one that a signal ended. A job that is requeued has not ended. While Slurm does not
    answer, an end that the run's ledger holds counts.

    Raises:
        SlurmTimeoutError: Slurm was silent for hours, and the ledger holds no end.
    """
    known: dict[str, JobInfo] = {}
    pause_s, silent_s = FIRST_LOOK_S, 0.0
    while True:
        sleep(pause_s)
        try:
            now = client.jobs_by_id([job_id])
        except SlurmTimeoutError as error:
            ended = _recorded_exit(ledger)
            if ended is not None:
                return ended
            if not silent_s:
                sys.stderr.write(
                    f"sbtrain: warning: {error.message}; asking again until it does\n"
                )
            silent_s += pause_s
            if silent_s > SILENT_FOR_S:
                raise SlurmTimeoutError(
                    f"whether job {job_id} has ended cannot be told: Slurm did not answer for "
                    f"{duration(SILENT_FOR_S)}",
                    hint=f"sbtrainctl status {job_id}, when it answers again",
                ) from error
        else:
            silent_s = 0.0
            known.update((job.job_id, job) for job in now)
            if all(job.over for job in now):
                break
        pause_s = min(2 * pause_s, LOOK_EVERY_S)
    if not known:
        ended = _recorded_exit(ledger)
        if ended is None:
            sys.stderr.write(f"sbtrain: warning: Slurm has forgotten job {job_id}\n")
        return 1 if ended is None else ended
    return max(1 if job.exit_signal else job.exit_code for job in known.values())


def _recorded_exit(ledger: Path) -> int | None:
    """Of the run's last attempt, where its ledger says that nothing comes after it."""
    try:
        records = attempts(read_ledger(ledger))
    except SbtrainError:
        return None
    end = recorded_end(records[-1]) if records else None
    return (records[-1].exit_code or 0) if end is not None and end.over else None
