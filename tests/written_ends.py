"""Ends of runs, and what `sbtrainctl status` must say of each; end_records.py says what they
are made of. tests/cluster/test_ends_on_slurm.py has a real Slurm make those that it can.
"""

from __future__ import annotations

import os

from end_records import (
    AGAIN_S,
    ENDED_AT,
    ENDED_S,
    KILL,
    STARTED_S,
    SUBMITTED_S,
    WrittenEnd,
    began,
    job,
    over,
    put_back,
    row,
    told,
)
from sbtrain.slurm.states import JobState
from sbtrain_jobs.record.ledger import LedgerEntry

FAILED = over("failed", 3, "worker-1 on node c2 ended with exit status 3")
KILLED = over("failed", 137, "worker-1 on node c2 was killed by signal KILL")
NOT_BACK = "the run declares no way to resume, or may not be requeued: it ends here"
LIMIT, PREEMPTED = over("time-limit", 143, NOT_BACK), over("preempted", 143, NOT_BACK)
CANCELLED = over("cancelled", 143, "the job was cancelled: that is final")
BY_ME = f"CANCELLED by {os.getuid()}"
BY_ROOT, BY_NOBODY = "CANCELLED by 0", "CANCELLED by 4000000000"
WAITED = {"nodes": "", "start_time_s": None, "elapsed_s": 0}
SECOND = {"submit_time_s": ENDED_S + 1, "start_time_s": AGAIN_S, "end_time_s": AGAIN_S + 60}
UNENDED = ("end not recorded",)

OF_THE_LEDGER = (
    WrittenEnd(
        injected="completed",
        ledger=over("completed"),
        job=job(JobState.COMPLETED),
        state="completed",
        causes=("completed",),
    ),
    WrittenEnd(
        injected="completed, past MinJobAge, no accounting",
        ledger=over("completed"),
        state="completed",
        causes=("completed",),
    ),
    WrittenEnd(
        injected="completed, and Slurm does not answer",
        ledger=over("completed"),
        silent="slurmctld",
        state="completed",
        causes=("completed",),
    ),
    WrittenEnd(
        injected="completed, and Slurm still cleans up after it",
        ledger=over("completed"),
        job=job(JobState.COMPLETING, end_time_s=None),
        state="completed",
        causes=("completed",),
    ),
    WrittenEnd(
        injected="a trainer failed with 3",
        ledger=FAILED,
        job=job(JobState.FAILED, "NonZeroExitCode", exit_code=3),
        state="failed",
        said=("worker-1 on node c2", "exit status 3"),
        causes=("failed",),
    ),
    WrittenEnd(
        injected="a trainer failed with 3, past MinJobAge, no accounting",
        ledger=FAILED,
        state="failed",
        said=("worker-1 on node c2", "exit status 3"),
        causes=("failed",),
    ),
    WrittenEnd(
        injected="a trainer was killed for memory",
        ledger=KILLED,
        job=job(JobState.OUT_OF_MEMORY, "OutOfMemory", exit_code=137),
        state="failed",
        said=("out of memory", "node c2"),
        causes=("failed",),
    ),
    WrittenEnd(
        injected="a trainer was killed for memory, past MinJobAge",
        ledger=KILLED,
        rows=(row(JobState.OUT_OF_MEMORY, exit_code=0, exit_signal=125),),
        state="failed",
        said=("out of memory", "node c2"),
        causes=("failed",),
    ),
    WrittenEnd(
        injected="it could not begin",
        ledger=over("launch-failed", 21, "only 1 of 2 nodes met"),
        job=job(JobState.FAILED, "NonZeroExitCode", exit_code=21),
        state="launch-failed",
        said=("only 1 of 2 nodes met",),
        causes=("launch-failed",),
    ),
    WrittenEnd(
        injected="preempted once more than it may come back",
        ledger=over("requeue-cap", 143),
        job=job(JobState.FAILED, "NonZeroExitCode", exit_code=143),
        state="requeue-cap",
        causes=("requeue-cap",),
    ),
    WrittenEnd(
        injected="told to stop by a signal by hand, and cannot resume",
        ledger=over("none", 143, NOT_BACK),
        state="failed",
        said=("did not say why",),
        causes=("none",),
    ),
)

CANCELS = (
    WrittenEnd(
        injected="cancelled while it waited",
        job=job(JobState.CANCELLED, nodes="", start_time_s=ENDED_S),
        state="cancelled",
    ),
    WrittenEnd(
        injected="cancelled while it waited, past MinJobAge",
        rows=(row(JobState.CANCELLED, BY_ME, **WAITED),),
        state="cancelled",
        said=("by you",),
    ),
    WrittenEnd(
        injected="cancelled while it waited, past MinJobAge, no accounting",
        state="gone-from-queue",
        said=("no attempt began", "most likely cancelled while it waited"),
    ),
    WrittenEnd(
        injected="cancelled while it ran",
        ledger=CANCELLED,
        job=job(JobState.CANCELLED, exit_code=143),
        rows=(row(JobState.CANCELLED, BY_NOBODY),),
        state="cancelled",
        said=("by the user of number 4000000000",),
        causes=("cancelled",),
    ),
    WrittenEnd(
        injected="cancelled while it ran, past MinJobAge",
        ledger=CANCELLED,
        rows=(row(JobState.CANCELLED, BY_NOBODY),),
        state="cancelled",
        said=("by the user of number 4000000000",),
        causes=("cancelled",),
    ),
    WrittenEnd(
        injected="cancelled while it ran, past MinJobAge, no accounting",
        ledger=CANCELLED,
        state="cancelled",
        causes=("cancelled",),
    ),
    WrittenEnd(
        injected="cancelled, and killed before it had written its end",
        ledger=(*began(), *told("cancelled")),
        state="cancelled",
        said=("killed before",),
        causes=UNENDED,
    ),
    WrittenEnd(
        injected="preempted, put back, cancelled while it waited, past MinJobAge",
        ledger=put_back("preempted"),
        rows=(
            row(JobState.PREEMPTED),
            row(JobState.CANCELLED, BY_ME, **{**SECOND, **WAITED}),
        ),
        state="cancelled",
        said=("by you",),
        causes=("preempted",),
    ),
    WrittenEnd(
        injected="preempted, put back, cancelled while it waited, no accounting",
        ledger=put_back("preempted"),
        state="gone-from-queue",
        said=("put back after attempt 0 (preempted)",),
        causes=("preempted",),
    ),
)

LIMITS = (
    WrittenEnd(
        injected="the time limit of a run that cannot resume",
        ledger=LIMIT,
        job=job(JobState.FAILED, "NonZeroExitCode", exit_code=143),
        state="time-limit",
        said=("no way to resume",),
        causes=("time-limit",),
    ),
    WrittenEnd(
        injected="the time limit of a run that cannot resume, past MinJobAge",
        ledger=LIMIT,
        rows=(row(JobState.FAILED, exit_code=143),),
        state="time-limit",
        said=("no way to resume",),
        causes=("time-limit",),
    ),
    WrittenEnd(
        injected="the time limit of a run that cannot resume, past MinJobAge, no accounting",
        ledger=LIMIT,
        state="time-limit",
        said=("ledger",),
        causes=("time-limit",),
    ),
    WrittenEnd(
        injected="the time limit, without a notice",
        ledger=began(),
        job=job(JobState.TIMEOUT, "TimeLimit"),
        state="timeout",
        said=("10 min", "attempt 0 left no end"),
        causes=UNENDED,
    ),
    WrittenEnd(
        injected="the time limit, killed before it had written its end, no accounting",
        ledger=(*began(), *told("time-limit")),
        state="time-limit",
        said=("killed before",),
        causes=UNENDED,
    ),
)

PREEMPTIONS = (
    WrittenEnd(
        injected="preempted and put back, waits",
        ledger=put_back("preempted"),
        job=job(JobState.PENDING, "BeginTime", restarts=1),
        state="pending",
        said=("BeginTime",),
        causes=("preempted",),
    ),
    WrittenEnd(
        injected="preempted and put back, runs again",
        ledger=(*put_back("preempted"), *began(1)),
        job=job(JobState.RUNNING, restarts=1),
        state="running",
        causes=("preempted", "running"),
    ),
    WrittenEnd(
        injected="preempted, --no-requeue",
        ledger=PREEMPTED,
        job=job(JobState.FAILED, "NonZeroExitCode", exit_code=143, requeue=False),
        state="preempted",
        said=("may not be requeued",),
        causes=("preempted",),
    ),
    WrittenEnd(
        injected="preempted, --no-requeue, Slurm 24.11",
        ledger=PREEMPTED,
        job=job(JobState.PREEMPTED, exit_code=143, requeue=False),
        state="preempted",
        said=("may not be requeued",),
        causes=("preempted",),
    ),
    WrittenEnd(
        injected="preempted, --no-requeue, killed before any notice, past MinJobAge",
        ledger=began(),
        rows=(row(JobState.PREEMPTED),),
        state="preempted",
        said=("does not put it back", "left no end"),
        causes=UNENDED,
    ),
    WrittenEnd(
        injected="preempted, --no-requeue, and Slurm does not answer",
        ledger=PREEMPTED,
        silent="slurmctld",
        state="preempted",
        said=("may not be requeued", "whether it comes back: Slurm does not answer"),
        causes=("preempted",),
    ),
    WrittenEnd(
        injected="preempted, and Slurm refused the requeue",
        ledger=(
            *put_back("preempted"),
            LedgerEntry(event="requeue-failed", attempt=0, at=ENDED_AT, detail="Access denied"),
        ),
        state="preempted",
        said=("Access denied",),
        causes=("preempted",),
    ),
)

LOSSES = (
    WrittenEnd(
        injected="the first node lost, put back by Slurm, waits",
        ledger=began(),
        job=job(JobState.PENDING, "BeginTime", restarts=1),
        down=("c1", "g3"),
        state="pending",
        said=("BeginTime", "attempt 0 left no end: c1 is down"),
        causes=UNENDED,
    ),
    WrittenEnd(
        injected="the first node lost, put back by Slurm, begins on others",
        ledger=began(),
        job=job(JobState.RUNNING, restarts=1),
        down=("c1",),
        state="running",
        said=("c1 is down",),
        causes=UNENDED,
    ),
    WrittenEnd(
        injected="the first node lost, --no-requeue",
        ledger=began(),
        job=job(JobState.NODE_FAIL, "NodeDown", requeue=False),
        down=("c1",),
        state="node_fail",
        said=("c1 is down",),
        causes=UNENDED,
    ),
    WrittenEnd(
        injected="the first node lost, --no-requeue, past MinJobAge, and the node is back",
        ledger=began(),
        rows=(row(JobState.NODE_FAIL),),
        state="node_fail",
        said=("a node was lost on c[1-2]",),
        causes=UNENDED,
    ),
    WrittenEnd(
        injected="the second node lost, --no-requeue",
        ledger=over("node-fail", 85, "node c2 lost"),
        job=job(JobState.NODE_FAIL, "NodeDown", requeue=False),
        state="node-fail",
        said=("node c2 lost",),
        causes=("node-fail",),
    ),
    WrittenEnd(
        injected="the second node lost, put back by Slurm, waits",
        ledger=over("node-fail", 85, "node c2 lost"),
        job=job(JobState.PENDING, "BeginTime", restarts=1),
        state="pending",
        causes=("node-fail",),
    ),
    WrittenEnd(
        injected="the second node lost, --no-requeue, past MinJobAge, no accounting",
        ledger=over("node-fail", 85, "node c2 lost"),
        state="node-fail",
        said=("node c2 lost", "ledger"),
        causes=("node-fail",),
    ),
    WrittenEnd(
        injected="the supervisor killed",
        ledger=began(),
        job=job(JobState.FAILED, exit_signal=KILL),
        state="failed",
        said=("signal KILL", "attempt 0 left no end"),
        causes=UNENDED,
    ),
    WrittenEnd(
        injected="the supervisor killed, past MinJobAge",
        ledger=began(),
        rows=(row(JobState.FAILED, exit_signal=KILL),),
        state="failed",
        said=("signal KILL",),
        causes=UNENDED,
    ),
    WrittenEnd(
        injected="the supervisor killed, past MinJobAge, no accounting",
        ledger=began(),
        state="lost",
        said=("attempt 0 left no end", "no longer knows"),
        causes=UNENDED,
    ),
    WrittenEnd(
        injected="the supervisor killed for memory",
        ledger=began(),
        job=job(JobState.OUT_OF_MEMORY, "OutOfMemory", exit_signal=KILL),
        state="out_of_memory",
        said=("memory", "c[1-2]"),
        causes=UNENDED,
    ),
)

OTHER_JOBS = (
    WrittenEnd(
        injected="put back by an operator, and not yet ended",
        ledger=began(),
        job=job(JobState.COMPLETING, restarts=1, start_time_s=STARTED_S),
        state="completing",
        causes=("running",),
    ),
    WrittenEnd(
        injected="failed, and requeued by hand",
        ledger=FAILED,
        job=job(JobState.PENDING, "BeginTime", restarts=1),
        state="pending",
        causes=("failed",),
    ),
    WrittenEnd(
        injected="failed, submitted again by hand as job 9, which runs",
        ledger=(*FAILED, *began(1, job_id="9")),
        job=job(JobState.RUNNING, job_id="9", number=9, comment="", start_time_s=AGAIN_S),
        state="running",
        causes=("failed", "running"),
    ),
    WrittenEnd(
        injected="preempted for good, and another run's job has its number now",
        ledger=PREEMPTED,
        job=job(JobState.RUNNING, comment="[sbtrain:mnist-7]"),
        state="preempted",
        said=("ledger",),
        causes=("preempted",),
    ),
    WrittenEnd(
        injected="cancelled while it waited, and a plain job has its number a day later",
        job=job(JobState.RUNNING, comment="", submit_time_s=SUBMITTED_S + 86_400),
        state="gone-from-queue",
    ),
    WrittenEnd(
        injected="killed, and the accounting has an older job of its number",
        ledger=began(),
        rows=(row(JobState.COMPLETED, submit_time_s=SUBMITTED_S - 86_400),),
        state="lost",
        causes=UNENDED,
    ),
    WrittenEnd(
        injected="slurmctld lost its jobs, and the accounting has not noticed",
        ledger=began(),
        rows=(row(JobState.RUNNING, end_time_s=None),),
        state="lost",
        said=("still calls it running",),
        causes=UNENDED,
    ),
    WrittenEnd(
        injected="killed, past MinJobAge, and slurmdbd does not answer",
        ledger=began(),
        silent="slurmdbd",
        state="unknown",
        said=("the accounting does not answer",),
        causes=("running",),
    ),
    WrittenEnd(
        injected="submitted to another cluster",
        cluster="frontier",
        state="unknown",
        said=("squeue -M frontier",),
    ),
)

WRITTEN_ENDS = (
    *OF_THE_LEDGER,
    *CANCELS,
    *LIMITS,
    *PREEMPTIONS,
    *LOSSES,
    *OTHER_JOBS,
)
