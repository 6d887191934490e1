"""The supervisor: the batch side of one attempt, from the first signal handler to the exit
code of the job. It puts the parts together; each part is a file of its own.
"""

from __future__ import annotations

import queue
import resource
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace

from sbtrain_jobs.batch_step import BatchStep, batch_step
from sbtrain_jobs.ending.cause import CauseInquiry, binds_cpus
from sbtrain_jobs.ending.job_control import JobControl
from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.layouts.ranks import chief_rank
from sbtrain_jobs.record.ledger import AttemptRecord, Ledger, attempts, next_attempt
from sbtrain_jobs.record.run_record import RunRecord
from sbtrain_jobs.run_folder import RunFolder, plan_of_task, write_task_plan
from sbtrain_jobs.signals import catch, notice_or_default, notice_signals, passed_on
from sbtrain_jobs.slurm_job import SlurmJob
from sbtrain_jobs.supervisor.attempt_steps import Attempt
from sbtrain_jobs.supervisor.conclusion import Aftermath
from sbtrain_jobs.supervisor.events import Events
from sbtrain_jobs.supervisor.phases import AttemptPhases
from sbtrain_jobs.supervisor.script_phases import ScriptPhases
from sbtrain_jobs.supervisor.signal_ways import SignalWays
from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.request import Plan
from sbtrain_perf.wording import count

OTHER_FILES = 256  # that the supervisor has open beside its connections


def supervise(
    plan: Plan,
    plan_path: str,
    job: SlurmJob,
    *,
    control: JobControl,
    environ: Mapping[str, str],
    events: Events | None = None,
    step: BatchStep | None = None,
) -> int:
    """Run one attempt of the plan inside its Slurm job. Called in the main thread, before there
    is another.

    Args:
        plan_path: the plan's file; every node must be able to read it.
        job: the one whose batch script this process is.
        control: what asks Slurm, and requeues.
        environ: the batch script's environment.
        events: where the caller already puts the signals it caught.
        step: what Slurm gave it, as far as the caller has looked before it changed any of it.

    Returns:
        The job's exit code: that of training, or of the script; 85 when the job is being
        requeued; 143 when it was told to stop and is not. Negative: the signal that is to end
        the job, as it ended the script.

    Raises:
        SbtrainError: the attempt could not begin; its exit_code is the job's.
    """
    events = queue.SimpleQueue() if events is None else events
    step = batch_step() if step is None else step
    ways = None
    if plan.launch == "script":
        ways = SignalWays()
        plan = replace(plan, preemption_signal=notice_or_default(plan.preemption_signal))
        catch(passed_on(), events.put)
    catch(notice_signals(plan.preemption_signal), events.put)
    if job.array_task:
        plan = plan_of_task(plan, job.array_task)
        plan_path = write_task_plan(plan)
    run_folder = RunFolder.of(plan)
    run_folder.make()
    earlier = attempts(Ledger(run_folder.ledger).entries())
    number = next_attempt(earlier, job.restart_count)
    folder = run_folder.attempt(number)
    folder.make()
    record = RunRecord(
        plan,
        job,
        attempt=number,
        folder=folder,
        earlier=earlier,
        lead_rank=chief_rank(plan) if ways is None else 0,
    )
    record.start()
    own = [one for one in earlier if one.job_id == job.job_id]
    requeued = max(job.restart_count, len(own))
    try:
        if completed_before(own):
            record.progress.say("the run had completed before: nothing is left to do")
            record.write("ended", cause="completed", exit_code=0, detail="nothing was left")
            return 0
        if requeued > plan.max_requeues and (ways is None or plan.resumable):
            raise LaunchError(
                f"job {job.job_id} was requeued {count(requeued, 'time')}, the plan allows "
                f"{plan.max_requeues}",
                hint="the run folder and its checkpoints are untouched: submit again",
            )
        ranks = len(plan.roles) if ways is None else plan.nodes * max(plan.cores_per_node, 64)
        _allow_connections(max(plan.nodes, ranks) + ranks)
        inquiry = CauseInquiry(control, job.job_id, sink=events.put)
        attempt = Attempt(
            plan=plan,
            plan_path=plan_path,
            job=job,
            number=number,
            folder=folder,
            record=record,
            events=events,
            inquiry=inquiry,
            environ=environ,
            binds_cpus=ways is not None or binds_cpus(control),
            token=secrets.token_hex(16),
        )
        if ways is None:
            outcome = AttemptPhases(attempt, step=step).run()
        else:
            outcome = ScriptPhases(attempt, step=step, ways=ways).run()
        return Aftermath(
            plan,
            job,
            record=record,
            events=events,
            inquiry=inquiry,
            control=control,
            environ=environ,
            requeues_left=plan.max_requeues - requeued,
            preempted_before=any(ended_by_slurm(one) for one in own),
        ).conclude(outcome)
    except SbtrainError as error:
        record.write(
            "ended",
            cause="launch-failed",
            exit_code=error.exit_code,
            detail=error.message,
        )
        raise
    finally:
        record.close()
        if ways is not None:
            ways.end()


def ended_by_slurm(one: AttemptRecord) -> bool:
    """A preemption that outlasted its grace: Slurm itself requeued the job."""
    taken = "preempted" in one.notices or one.cause in ("preempted", "requeued")
    return taken and not one.requeued


def completed_before(own: Sequence[AttemptRecord]) -> bool:
    """Slurm puts a preempted job back into the queue even where it has ended well.

    own: earlier attempts of this very job. One that Slurm restarts for no such reason was
    requeued by hand, to run again.
    """
    last = own[-1] if own else None
    return (
        last is not None and last.cause == "completed" and bool(last.notices or last.requeued)
    )


def _allow_connections(count: int) -> None:
    """Room for one connection from each agent and trainer, where the host permits it. Not
    more: srun hands this limit on to the trainers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
