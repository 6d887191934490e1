"""What becomes of the job once an attempt is over: its exit code, its requeue, and the wait
for Slurm where Slurm knows better (a node that died, a controller that is away)."""

from __future__ import annotations

import queue
import time
from collections.abc import Mapping
from dataclasses import replace

from sbtrain_jobs.ending.cause import (
    CauseFound,
    CauseInquiry,
    end_cause_within,
    leave_ended,
    requeue,
    way_back,
)
from sbtrain_jobs.ending.job_control import JobControl
from sbtrain_jobs.ending.outcome import Failure, Outcome
from sbtrain_jobs.ending.script_verdict import judge_script
from sbtrain_jobs.ending.verdict import EXIT_ENDED_BY_NOTICE, Facts, Verdict, judge
from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.record.ledger import lost_in_words
from sbtrain_jobs.record.run_record import RunRecord
from sbtrain_jobs.slurm_job import SlurmJob
from sbtrain_jobs.supervisor.events import Events
from sbtrain_jobs.supervisor.srun_commands import probe_command
from sbtrain_jobs.supervisor.srun_step import SlurmStep, StepEnded
from sbtrain_jobs.wire.messages import EXIT_STOPPED
from sbtrain_perf.request import Plan

NODE_FAIL_WITHIN_S = 600.0  # SlurmdTimeout is 300 s unless a site says otherwise
ANSWER_WITHIN_S = 120.0  # a cancelled job does not live that long: KillWait is 30 s
ASK_EVERY_S = 5.0
PROBE_WITHIN_S = 20.0
KILL_WITHIN_S = 120.0  # past the grace time: the scheduler's tick, and KillWait


class Aftermath:
    """Turns an Outcome into the job's exit code, with what that takes.

    preempted_before: an earlier attempt of this job was, and did not end within the grace.
    """

    def __init__(
        self,
        plan: Plan,
        job: SlurmJob,
        *,
        record: RunRecord,
        events: Events,
        inquiry: CauseInquiry,
        control: JobControl,
        environ: Mapping[str, str],
        requeues_left: int,
        preempted_before: bool,
    ) -> None:
        self._plan = plan
        self._job = job
        self._record = record
        self._events = events
        self._inquiry = inquiry
        self._control = control
        self._environ = environ
        self._requeues_left = requeues_left
        self._preempted_before = preempted_before
        self._say = record.progress.say

    def conclude(self, outcome: Outcome) -> int:
        """The exit code of the job, or the signal that is to end it as a negative number; the
        caller has nothing left to do but end so."""
        verdict = self._judge(outcome)
        if verdict.action == "wait" and outcome.lost_nodes:
            outcome = self._with_lost_nodes_probed(outcome)
            verdict = self._judge(outcome)
        if verdict.action == "wait":
            outcome = self._waited(outcome)
            verdict = self._judge(outcome)
            if verdict.action == "wait":  # still nothing: then it is ours to act
                verdict = self._without_slurm(outcome)
        if verdict.action == "requeue":
            outcome = self._asked_once_more(outcome)
            verdict = self._final(outcome, verdict)
        if verdict.cause in ("requeued", "none", "unknown") and (named := named_cause(outcome)):
            verdict = replace(verdict, cause=named)  # Slurm has forgotten why
        if verdict.action == "requeue":
            return self._requeue(verdict, outcome)
        return self._end(verdict, outcome)

    def _final(self, outcome: Outcome, before: Verdict) -> Verdict:
        found = self._judge(outcome)
        return before if found.action == "wait" else found

    def _judge(self, outcome: Outcome) -> Verdict:
        facts = self._facts(outcome)
        return judge(facts) if outcome.script is None else judge_script(facts, outcome.script)

    def _facts(self, outcome: Outcome) -> Facts:
        failure = outcome.failure
        return Facts(
            finished=outcome.finished,
            noticed=outcome.noticed,
            cause=outcome.cause,
            failed_code=None if failure is None else failure.code,
            failed_first=failure is not None and failure.first,
            nodes_lost=bool(outcome.lost_nodes),
            resumable=self._plan.resumable,
            requeues_left=self._requeues_left,
            steps_done=outcome.steps_done,
            stuck=outcome.stuck,
        )

    def _end(self, verdict: Verdict, outcome: Outcome) -> int:
        if verdict.cause == "failed" and outcome.failure is not None:
            failure = outcome.failure
            self._say("\n".join(filter(None, (f"error: {failure.words}", failure.hint))))
        if verdict.words:
            self._say(verdict.words)
        self._record.write(
            "ended",
            cause=verdict.cause,
            exit_code=verdict.exit_code,
            detail=self._detail(verdict, outcome),
        )
        ours = outcome.script is None or (outcome.noticed and self._plan.resumable)
        if ours and verdict.cause != "cancelled" and verdict.exit_code != EXIT_STOPPED:
            self._leave_ended(verdict, outcome)
        return -verdict.signal or verdict.exit_code

    def _detail(self, verdict: Verdict, outcome: Outcome) -> str:
        """What the ledger says of an end beside its cause."""
        if verdict.words:
            return verdict.words
        if verdict.cause == "failed" and outcome.failure is not None:
            return outcome.failure.words
        if verdict.cause == "node-fail":
            return lost_in_words(outcome.lost_nodes)
        return outcome.shortfall if outcome.finished else ""

    def _leave_ended(self, verdict: Verdict, outcome: Outcome) -> None:
        """From 24.11 on Slurm requeues what ends while it is being preempted, and what ends
        well after a preemption that outlasted its grace."""
        if way_back(self._control) == "requeue":
            return
        known = self._preempted_before or "preempted" in (outcome.cause, outcome.first_cause)
        if not known and not self._preempted_now():
            return
        completed = verdict.cause == "completed"
        left = leave_ended(self._control, self._job.job_id, for_others=completed)
        if not left.comes_back:
            return
        self._say(f"Slurm may start job {self._job.job_id} once more ({left.why})")
        if completed:  # then the next attempt has nothing to do, and says so
            self._record.write("requeued", cause=verdict.cause)

    def _preempted_now(self) -> bool:
        """Nobody may have heard of it, so close to the end."""
        return end_cause_within(self._control, self._job.job_id).cause == "preempted"

    def _requeue(self, verdict: Verdict, outcome: Outcome) -> int:
        # Slurm kills the batch script as soon as it has requeued the job: all is written
        # before it is asked.
        self._record.write(
            "ended",
            cause=verdict.cause,
            exit_code=verdict.exit_code,
            detail=self._detail(verdict, outcome),
        )
        self._record.write("requeued", cause=verdict.cause)
        saved = f"; {outcome.saved}" if outcome.saved else ""
        way = way_back(self._control) if verdict.cause == "preempted" else "requeue"
        what = "requeueing" if way == "requeue" else "leaving to Slurm the requeue of"
        self._say(f"{what} job {self._job.job_id} ({verdict.cause}{saved})")
        self._record.close()
        if way == "exit":
            return verdict.exit_code
        if way == "wait":
            self._stay(self._plan.grace_s + KILL_WITHIN_S)
        result = requeue(self._control, self._job.job_id)
        if result.done:
            return verdict.exit_code
        self._record.write("requeue-failed", cause=result.cause, detail=result.problem)
        if result.cause == "cancelled":
            self._record.write("ended", cause="cancelled", exit_code=EXIT_ENDED_BY_NOTICE)
            self._say("the job was cancelled: it is not requeued")
            return EXIT_ENDED_BY_NOTICE
        self._say(
            f"error: the job was not requeued: {result.problem}\n"
            f"requeue it by hand: scontrol requeue {self._job.job_id}"
        )
        return verdict.exit_code

    def _stay(self, within_s: float) -> None:
        """Until Slurm ends and requeues the job, which ends this process too."""
        end_s = time.monotonic() + within_s
        while (left_s := end_s - time.monotonic()) > 0:
            self._next(left_s)

    def _asked_once_more(self, outcome: Outcome) -> Outcome:
        """Slurm would requeue even a cancelled job, so it is asked again, just before."""
        found = end_cause_within(self._control, self._job.job_id)
        if found.cause in ("none", "unknown"):
            if found.problem:
                self._say(f"warning: {found.problem}")
            return outcome
        return replace(outcome, cause=found.cause, noticed=True)

    # -- waiting for Slurm -------------------------------------------------------------

    def _with_lost_nodes_probed(self, outcome: Outcome) -> Outcome:
        """A node that starts a step is well: then its agent died by itself, and that is a
        failure of this job."""
        node = outcome.lost_nodes[0]
        self._say(f"asking whether node {node} is well")
        step = SlurmStep(
            "probe",
            probe_command(node),
            environment=self._environ,
            sink=self._events.put,
            quiet=True,
        )
        end_s = time.monotonic() + PROBE_WITHIN_S
        returncode = -1
        while (left_s := end_s - time.monotonic()) > 0 and returncode == -1:
            match self._next(left_s):
                case StepEnded(name="probe", returncode=code):
                    returncode = code
                case int():
                    outcome = replace(outcome, noticed=True)
                    break
        if returncode == -1:
            step.kill()
        if returncode != 0:
            return outcome
        failure = Failure(
            code=LaunchError.exit_code,
            words=f"the agent on node {node} ended without a word, though the node is well",
            hint="was it killed, or out of memory? dmesg on the node and sacct --format "
            "JobID,State,ExitCode,MaxRSS tell",
        )
        return replace(outcome, lost_nodes=(), failure=outcome.failure or failure)

    def _waited(self, outcome: Outcome) -> Outcome:
        """Ask Slurm again and again until it says why the job ends, or does end it."""
        within_s = NODE_FAIL_WITHIN_S if outcome.lost_nodes else ANSWER_WITHIN_S
        what = f"node {outcome.lost_nodes[0]}" if outcome.lost_nodes else "the job"
        self._say(f"waiting for Slurm to say what becomes of {what}")
        end_s = time.monotonic() + within_s
        ask_s = time.monotonic()
        while time.monotonic() < end_s:
            if time.monotonic() >= ask_s:
                ask_s = time.monotonic() + ASK_EVERY_S
                self._inquiry.ask()
            self._inquiry.look()
            match self._next(0.2):
                case CauseFound(cause=cause) if cause not in ("none", "unknown"):
                    return replace(outcome, cause=cause)
                case CauseFound(cause="none") if outcome.noticed and not outcome.lost_nodes:
                    return replace(outcome, cause="none")
                case int():
                    outcome = replace(outcome, noticed=True)
                    ask_s = time.monotonic()
        return outcome

    def _next(self, within_s: float) -> object:
        try:
            return self._events.get(timeout=within_s)
        except queue.Empty:
            return None

    def _without_slurm(self, outcome: Outcome) -> Verdict:
        cause = "node-fail" if outcome.lost_nodes else "unknown"
        if self._plan.resumable and self._requeues_left > 0:
            return Verdict(action="requeue", exit_code=85, cause=cause)
        return Verdict(
            action="end",
            exit_code=LaunchError.exit_code,
            cause=cause,
            words="Slurm did not say what becomes of the job; it is not requeued",
        )


def named_cause(outcome: Outcome) -> str:
    """What is known of the cause beside Slurm's last word."""
    if outcome.first_cause not in ("none", "unknown", "requeued"):
        return outcome.first_cause
    if outcome.lost_nodes:
        return "node-fail"
    return "requeued" if outcome.requeue_asked else ""
