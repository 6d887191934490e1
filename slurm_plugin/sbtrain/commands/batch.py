"""`python -m sbtrain.commands.batch PLAN_JSON`: what the job script ends in.

It becomes the job's batch process: it catches Slurm's signals, runs the plan, and ends as
training, or the script that starts it, has ended: with its exit code, or by its signal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain_jobs.batch_step import BatchStep, batch_step
from sbtrain_jobs.signals import ALWAYS, catch, end_by

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sbtrain_jobs.supervisor.events import Events
    from sbtrain_perf.request import Plan

EXIT_USAGE = 2
LEARN_WITHIN_S = 15.0


def main(argv: list[str] | None = None) -> int:
    """The exit status of the job. Where its script was ended by a signal, so are we."""
    code = _attempt(argv)
    if sys.flags.inspect:  # the user's PYTHONINSPECT, with which sys.exit is an error
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _attempt(argv: list[str] | None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if len(words) != 1 or words[0].startswith("-"):
        sys.stderr.write("usage: python -m sbtrain.commands.batch PLAN_JSON\n")
        return EXIT_USAGE
    # Before anything slow is imported: Slurm may signal a job as soon as it runs.
    events: Events = queue.SimpleQueue()
    catch(ALWAYS, events.put)
    code = _run(words[0], events, batch_step())
    if code < 0:
        end_by(-code)
    return code


def _run(plan_path: str, events: Events, step: BatchStep) -> int:
    from sbtrain.slurm.command_client import CommandsClient
    from sbtrain.slurm.outer_job import without_outer_run
    from sbtrain.slurm.own_job import OwnJobControl, is_batch_script, own_job
    from sbtrain_jobs.ending.grace import warning_s
    from sbtrain_jobs.ending.verdict import EXIT_ENDED_BY_NOTICE
    from sbtrain_jobs.supervisor.supervise import supervise
    from sbtrain_jobs.wire.messages import EXIT_STOPPED
    from sbtrain_perf.codec import read_plan
    from sbtrain_perf.errors import SbtrainError
    from sbtrain_staging.errors import StagingError

    try:
        plan = _with_nodes(read_plan(plan_path), os.environ)
        client = CommandsClient(limit_warning_s=warning_s(plan.sbatch_options) + 60.0)
        job = own_job(
            plan,
            client,
            os.environ,
            batch_script=is_batch_script(os.environ),
            now_s=time.time(),
            warn=_warn,
        )
        code = supervise(
            plan,
            str(Path(plan_path).absolute()),
            job,
            control=OwnJobControl(client=client, job=job),
            environ=without_outer_run(os.environ),
            events=events,
            step=step,
        )
        if code not in (EXIT_STOPPED, EXIT_ENDED_BY_NOTICE):  # else Slurm ends it any moment
            _learn(plan)
        return code
    except (SbtrainError, StagingError) as error:
        sys.stderr.write(f"sbtrain: error: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"sbtrain: {error.hint}\n")
        return error.exit_code


def _learn(plan: Plan) -> None:
    """Not longer than the nodes may wait for it. What goes wrong here is told by `sbtrainctl
    refit`, which learns from the same."""
    from sbtrain.runs.learning import learn_at_end

    def learn() -> None:
        with contextlib.suppress(Exception):
            learn_at_end(plan, os.environ)

    learning = threading.Thread(target=learn, name="learning", daemon=True)
    learning.start()
    learning.join(LEARN_WITHIN_S)


def _with_nodes(plan: Plan, environ: Mapping[str, str]) -> Plan:
    """A script that starts its ranks itself runs on the nodes that the job has got."""
    from sbtrain_jobs.hostlist import expand

    if plan.launch != "script":
        return plan
    nodes = len(expand(environ.get("SLURM_JOB_NODELIST", "")))
    return dataclasses.replace(plan, nodes=nodes or plan.nodes)


def _warn(words: str) -> None:
    sys.stderr.write(f"sbtrain: warning: {words}\n")


if __name__ == "__main__":
    sys.exit(main())
