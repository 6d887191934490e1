"""Asking Slurm why the job ends, and having it requeued, without ever hanging on Slurm.

Every call runs in a thread of its own with a bound: slurmctld may be away for minutes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from sbtrain_jobs.ending.job_control import EndCause, JobControl, WayBack
from sbtrain_jobs.errors import CommandError
from sbtrain_perf.errors import SbtrainError

ANSWER_WITHIN_S = 8.0
ASK_AGAIN_S = 1.0
REQUEUE_WITHIN_S = 30.0
REQUEUE_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CauseFound:
    cause: EndCause
    problem: str = ""


class CauseInquiry:
    """At most one question at a time, and not more than one every ASK_AGAIN_S seconds, so
    that a thousand agents that hear the same signal make one call."""

    def __init__(
        self, control: JobControl, job_id: str, *, sink: Callable[[CauseFound], None]
    ) -> None:
        self._control = control
        self._job_id = job_id
        self._sink = sink
        self._lock = threading.Lock()
        self._since_s: float | None = None  # of the question that is open
        self._question = 0
        self._next_s = 0.0
        self._again = False

    def ask(self) -> None:
        """Have CauseFound sent; soon again when a question is open that may be too old."""
        self._again = True
        self.look()

    def look(self) -> None:
        """To be called every moment: starts what is due, gives up what takes too long."""
        now_s = time.monotonic()
        with self._lock:
            if self._since_s is not None and now_s > self._since_s + ANSWER_WITHIN_S:
                self._since_s = None
                self._question += 1
                self._sink(CauseFound(cause="unknown", problem="Slurm does not answer"))
            if not self._again or self._since_s is not None or now_s < self._next_s:
                return
            self._again = False
            self._since_s = now_s
            self._next_s = now_s + ASK_AGAIN_S
            number = self._question
        threading.Thread(target=self._call, args=(number,), name="cause", daemon=True).start()

    @property
    def open(self) -> bool:
        """Whether an answer is still to come; it is with the sink where none is."""
        with self._lock:
            return self._again or self._since_s is not None

    def _call(self, number: int) -> None:
        found = end_cause(self._control, self._job_id)
        with self._lock:
            if number != self._question:
                return  # too late: "unknown" has been said
            self._since_s = None
            self._question += 1
            self._sink(found)


def end_cause(control: JobControl, job_id: str) -> CauseFound:
    """One answer. A call that Slurm's own signals to the job killed is made once more."""
    for _ in range(2):
        try:
            return CauseFound(cause=control.end_cause(job_id))
        except CommandError as error:
            problem = error.message
            if error.returncode is None or error.returncode >= 0:
                break
        except SbtrainError as error:
            problem = error.message
            break
    return CauseFound(cause="unknown", problem=problem)


def end_cause_within(
    control: JobControl, job_id: str, *, within_s: float = ANSWER_WITHIN_S
) -> CauseFound:
    """One answer, "unknown" when Slurm takes longer than within_s seconds."""
    answer = _bounded(lambda: end_cause(control, job_id), within_s)
    if isinstance(answer, CauseFound):
        return answer
    return CauseFound(cause="unknown", problem=str(answer))


def way_back(control: JobControl, *, within_s: float = ANSWER_WITHIN_S) -> WayBack:
    """How a preempted job comes back; "wait" where Slurm does not say."""
    answer = _bounded(control.way_back, within_s)
    return answer if answer in ("requeue", "exit") else "wait"


def binds_cpus(control: JobControl, *, within_s: float = ANSWER_WITHIN_S) -> bool:
    """Whether the cluster keeps tasks on cores; so it is where Slurm does not say."""
    return _bounded(control.binds_cpus, within_s) is not False


def leave_ended(control: JobControl, job_id: str, *, for_others: bool) -> LeftEnded:
    """Keep Slurm from starting a job once more that ends for good while it is preempted.

    Args:
        for_others: jobs that wait for this one to complete matter. They do not count an end
            within a preemption, so then it is left to Slurm, which starts the job again.
    """

    def ask() -> LeftEnded:
        if for_others and control.awaited(job_id):
            return LeftEnded(comes_back=True, why="another job waits for this one to complete")
        control.forbid_requeue(job_id)
        return LeftEnded(comes_back=False)

    answer = _bounded(ask, ANSWER_WITHIN_S)
    if isinstance(answer, LeftEnded):
        return answer
    why = answer.message if isinstance(answer, SbtrainError) else str(answer)
    return LeftEnded(comes_back=True, why=why)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftEnded:
    """comes_back: Slurm may start the job once more; why says what keeps us from that."""

    comes_back: bool
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeueResult:
    done: bool
    cause: EndCause
    problem: str = ""


def requeue(control: JobControl, job_id: str, *, pause_s: float = 2.0) -> RequeueResult:
    """Put the job back into the queue once, unless it has meanwhile been cancelled.

    A call whose answer was lost may have worked, so Slurm is asked before each repetition.
    """
    problem = ""
    for attempt in range(REQUEUE_TRIES):
        if attempt:
            time.sleep(pause_s)
            cause = end_cause_within(control, job_id).cause
            if cause in ("requeued", "cancelled"):
                return RequeueResult(done=cause == "requeued", cause=cause)
        answer = _bounded(lambda: control.requeue(job_id), REQUEUE_WITHIN_S)
        if answer is None:
            return RequeueResult(done=True, cause="requeued")
        problem = str(answer)
    return RequeueResult(done=False, cause="unknown", problem=problem)


def _bounded(call: Callable[[], object], within_s: float) -> object:
    """What the call returns, its SbtrainError, or a line that it took too long."""
    answers: list[object] = []

    def run() -> None:
        try:
            answers.append(call())
        except SbtrainError as error:
            answers.append(error)

    thread = threading.Thread(target=run, name="slurm", daemon=True)
    thread.start()
    thread.join(within_s)
    return answers[0] if answers else f"no answer from Slurm within {within_s:g} s"
