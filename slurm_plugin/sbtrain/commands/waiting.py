"""`sbtrain --wait`: stay until the job has ended for good, and exit as it did."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from sbtrain.errors import SlurmTimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sbtrain.slurm.client import JobInfo, SlurmClient

FIRST_LOOK_S = 2.0
LOOK_EVERY_S = 30.0  # at most one question to slurmctld in this time, once it runs long


def wait_for_job(
    client: SlurmClient, job_id: str, *, sleep: Callable[[float], None] = time.sleep
) -> int:
    """The job's exit code as `sbatch --wait` gives it: the highest of an array's tasks, 1
    for one that a signal ended. A job that is requeued has not ended.
    """
    known: dict[str, JobInfo] = {}
    pause_s = FIRST_LOOK_S
    while True:
        sleep(pause_s)
        pause_s = min(2 * pause_s, LOOK_EVERY_S)
        try:
            now = client.jobs_by_id([job_id])
        except SlurmTimeoutError:
            continue  # slurmctld may be restarting; the job goes on without it
        known.update((job.job_id, job) for job in now)
        if all(job.over for job in now):
            break
    if not known:
        sys.stderr.write(f"sbtrain: warning: Slurm has forgotten job {job_id}\n")
        return 1
    return max(1 if job.exit_signal else job.exit_code for job in known.values())
