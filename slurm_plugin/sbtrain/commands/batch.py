"""`python -m sbtrain.commands.batch PLAN_JSON`: what the job script ends in.

It becomes the job's batch process: it catches Slurm's signals, runs the plan, and exits
with the exit code of training.
"""

from __future__ import annotations

import os
import queue
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain_jobs.signals import ALWAYS, catch

if TYPE_CHECKING:
    from sbtrain_jobs.supervisor.events import Events

EXIT_USAGE = 2


def main(argv: list[str] | None = None) -> int:
    """The exit status of the job."""
    words = sys.argv[1:] if argv is None else argv
    if len(words) != 1 or words[0].startswith("-"):
        sys.stderr.write("usage: python -m sbtrain.commands.batch PLAN_JSON\n")
        return EXIT_USAGE
    # Before anything slow is imported: Slurm may signal a job as soon as it runs.
    events: Events = queue.SimpleQueue()
    catch(ALWAYS, events.put)
    return _run(words[0], events)


def _run(plan_path: str, events: Events) -> int:
    from sbtrain.slurm.command_client import CommandsClient
    from sbtrain.slurm.outer_job import without_outer_run
    from sbtrain.slurm.own_job import OwnJobControl, is_batch_script, own_job
    from sbtrain_jobs.ending.grace import warning_s
    from sbtrain_jobs.supervisor.supervise import supervise
    from sbtrain_perf.codec import read_plan
    from sbtrain_perf.errors import SbtrainError
    from sbtrain_staging.errors import StagingError

    try:
        plan = read_plan(plan_path)
        client = CommandsClient(limit_warning_s=warning_s(plan.sbatch_options) + 60.0)
        job = own_job(
            plan,
            client,
            os.environ,
            batch_script=is_batch_script(os.environ),
            now_s=time.time(),
            warn=_warn,
        )
        return supervise(
            plan,
            str(Path(plan_path).absolute()),
            job,
            control=OwnJobControl(client=client, job=job),
            environ=without_outer_run(os.environ),
            events=events,
        )
    except (SbtrainError, StagingError) as error:
        sys.stderr.write(f"sbtrain: error: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"sbtrain: {error.hint}\n")
        return error.exit_code


def _warn(words: str) -> None:
    sys.stderr.write(f"sbtrain: warning: {words}\n")


if __name__ == "__main__":
    sys.exit(main())
