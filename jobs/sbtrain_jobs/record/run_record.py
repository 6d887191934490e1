"""What the supervisor writes down of an attempt: ledger, timing log, progress.

The ledger must be writable when an attempt starts; after that nothing in this file ends a
job: what cannot be written is said once on stderr, and training goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sbtrain_jobs.batch_step import file_behind
from sbtrain_jobs.errors import LaunchError
from sbtrain_jobs.record.ledger import (
    AttemptRecord,
    Ledger,
    LedgerEntry,
    LedgerEvent,
    attempts,
    end_of_lost,
    utc_now,
)
from sbtrain_jobs.record.progress_lines import ProgressLines
from sbtrain_jobs.run_folder import AttemptFolder, RunFolder
from sbtrain_jobs.slurm_job import SlurmJob
from sbtrain_jobs.wire.messages import PhaseDone, StepsDone
from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.request import Plan
from sbtrain_perf.wording import count, duration

if TYPE_CHECKING:
    from sbtrain_perf.timing_log import TimingLog

FLUSH_EVERY_S = 2.0

_RESERVED = ("name", "seconds", "at_s")  # a metric may not be called so


class RunRecord:
    """One attempt's record. Its timing log is made when it is known whose times it will hold;
    what is measured before waits for that.

    Args:
        earlier: the run's attempts before this one, in order.
        lead_rank: whose steps are the run's progress.
    """

    def __init__(
        self,
        plan: Plan,
        job: SlurmJob,
        *,
        attempt: int,
        folder: AttemptFolder,
        earlier: Sequence[AttemptRecord],
        lead_rank: int,
    ) -> None:
        self.progress = ProgressLines(steps=plan.steps, quiet=plan.quiet)
        self._plan = plan
        self._job = job
        self._attempt = attempt
        self._folder = folder
        self._earlier = tuple(earlier)
        self._lead_rank = lead_rank
        self._ledger = Ledger(RunFolder.of(plan).ledger)
        self._timings: TimingLog | None = None
        self._opened = False
        self._waiting: list[Callable[[TimingLog], object]] = []
        self._flushed_s = 0.0
        self._split: dict[int, tuple[float, float]] = {}  # seconds of steps, of their input
        self._first_step_seen = False
        self._warned: set[str] = set()

    def start(self) -> None:
        """Write the attempt down, and the end of an earlier one that left none.

        Raises:
            LaunchError: the ledger cannot be written, or another job has begun this attempt.
        """
        for lost in (record for record in self._earlier if not record.ended_at):
            cause, detail = end_of_lost(lost, self._job.down)
            self._ledger.append(
                LedgerEntry(
                    event="ended",
                    attempt=lost.attempt,
                    at=utc_now(),
                    job_id=lost.job_id,
                    cause=cause,
                    detail=detail,
                )
            )
        self._ledger.append(
            LedgerEntry(
                event="started",
                attempt=self._attempt,
                at=utc_now(),
                job_id=self._job.job_id,
                nodes=self._job.node_list,
                output=file_behind(1),
                errors=file_behind(2),
            )
        )
        self._give_way()
        if (queue_s := self._queue_s()) is not None:
            self._timed(lambda log: log.phase("queue", queue_s, at_s=-queue_s))

    def open_timings(self, plan: Plan) -> None:
        """Make the timing log, once. plan: the world of ranks whose steps it will hold."""
        if self._opened:
            return
        self._opened = True
        try:
            from sbtrain_perf.timing_log import TimingLog

            self._timings = TimingLog.create(
                self._folder.timings, plan=plan, attempt=self._attempt
            )
        except (SbtrainError, ImportError, OSError, RuntimeError, ValueError) as error:
            self._warn(f"this attempt has no timing log: {error}")
        for write in self._waiting:
            self._timed(write)
        self._waiting.clear()

    def _give_way(self) -> None:
        """Of two jobs that begin at the same time, the one that wrote so first goes on."""
        for one in attempts(self._ledger.entries()):
            if one.attempt == self._attempt and one.job_id != self._job.job_id:
                raise LaunchError(
                    f"job {one.job_id} began attempt {self._attempt} of this run just before",
                    hint=f"wait for it, or end it: scancel {one.job_id}",
                )

    def write(
        self,
        event: LedgerEvent,
        *,
        cause: str = "",
        step: int | None = None,
        exit_code: int | None = None,
        detail: str = "",
    ) -> None:
        """Append to the ledger; a failure is a warning."""
        entry = LedgerEntry(
            event=event,
            attempt=self._attempt,
            at=utc_now(),
            job_id=self._job.job_id,
            cause=cause,
            step=step,
            exit_code=exit_code,
            detail=detail,
        )
        try:
            self._ledger.append(entry)
        except SbtrainError as error:
            self._warn(error.message)

    def phase(self, name: str, seconds: float, **numbers: float | None) -> None:
        """A phase that ends now; numbers as the timing log names them."""
        at_s = time.time() - self._job.started_s - seconds
        self._timed(lambda log: log.phase(name, seconds, at_s=at_s, **numbers))

    def phase_done(self, said: PhaseDone) -> None:
        numbers: dict[str, float | None] = {
            name: value for name, value in said.metrics.items() if name not in _RESERVED
        }
        numbers |= {"rank": said.rank, "step": said.step}
        numbers |= {"parameters": said.parameters, "tensors": said.tensors}
        if said.variables:
            from sbtrain_perf.shards import shard_numbers

            numbers |= shard_numbers(said.variables)
        if said.size_bytes:
            numbers["size_bytes"] = said.size_bytes
        self.phase(said.name, said.seconds, **numbers)
        if said.name == "checkpoint":
            self.flush()

    def steps_done(
        self, said: StepsDone, *, by_hooks: bool = False, aloud: bool = True
    ) -> None:
        """by_hooks: they count from 1 in every attempt, whatever the script resumed from.
        aloud: they are the progress of the run."""
        if not said.seconds:
            return
        if aloud and said.rank == self._lead_rank:
            if not self._first_step_seen and not by_hooks:
                self._first_step_seen = True
                self._steps_redone(resumed_step=said.first - 1)
            known = self._plan.steps_known or not by_hooks
            self.progress.step(said.first + len(said.seconds) - 1, of_planned=known)
        self._timed(
            lambda log: log.steps(said.rank, said.first, said.seconds, said.samples_per_step)
        )
        if said.input_s:
            steps_s, input_s = self._split.get(said.rank, (0.0, 0.0))
            so_far = (steps_s + sum(said.seconds), input_s + said.input_s)
            self._split[said.rank] = so_far
        if time.monotonic() - self._flushed_s >= FLUSH_EVERY_S:
            self.flush()

    def staged(self) -> None:
        """Note what the staging step says it did."""
        try:
            from sbtrain_staging.errors import StagingError
            from sbtrain_staging.reports.run_report import read_report

            said = read_report(self._folder.staging_report)
        except (StagingError, ImportError) as error:
            self._warn(f"no staging report: {error}")
            return
        self.progress.say(f"staged in {duration(said.seconds)}")
        self.phase(
            "stage",
            said.seconds,
            size_bytes=said.dataset_bytes,
            source_bytes_read=said.source_bytes_read,
        )

    def flush(self) -> None:
        self._flushed_s = time.monotonic()
        # Rows that cannot be written would pile up in memory: the log ends here.
        if self._opened and not self._timed(lambda log: log.flush()):
            self._timings = None

    def close(self) -> None:
        if len(self._waiting) > 1:  # more than the wait in the queue: staging, say
            self.open_timings(self._plan)
        if self._opened:
            for rank, (steps_s, input_s) in self._split.items():
                self.phase("steps", steps_s, rank=rank, input_s=input_s)
            self._timed(lambda log: log.close())
        self._timings = None

    def _timed(self, write: Callable[[TimingLog], object]) -> bool:
        """Whether it was written or waits, or there is nothing to write to."""
        if not self._opened:
            self._waiting.append(write)
            return True
        if self._timings is None:
            return True
        try:
            write(self._timings)
        except (SbtrainError, OSError, RuntimeError, ValueError, TypeError) as error:
            self._warn(f"timing log: {error}")
            return False
        return True

    def _queue_s(self) -> float | None:
        """Seconds in the queue: since submission, or since the end of the attempt before."""
        since = self._earlier[-1].ended_at if self._earlier else self._plan.submitted_at
        try:
            return max(0.0, self._job.started_s - datetime.fromisoformat(since).timestamp())
        except ValueError:
            return None

    def _steps_redone(self, *, resumed_step: int) -> None:
        """Note as lost what earlier attempts had done beyond the step resumed from, and say
        loudly where it had been saved."""
        saved = [one.saved_step for one in self._earlier if one.saved_step is not None]
        if saved and saved[-1] > resumed_step:
            self._warn(
                f"step {saved[-1]} was saved, and training goes on after step {resumed_step}: "
                f"its checkpoint is gone or damaged ({self._plan.checkpoint_dir})"
            )
        for record in reversed(self._earlier):
            timings = RunFolder.of(self._plan).attempt(record.attempt).timings
            done = steps_beyond(timings, rank=self._lead_rank, step=resumed_step)
            if done is None:
                continue  # it ran no step, or left no log: ask the one before
            steps, seconds = done
            self.phase("lost", seconds, steps=steps, step=resumed_step)
            if steps:
                self.progress.say(
                    f"resumed after step {resumed_step}: {count(steps, 'step')} to do again"
                )
            return

    def _warn(self, words: str) -> None:
        if words not in self._warned:
            self._warned.add(words)
            self.progress.say(f"warning: {words}")


def steps_beyond(path: Path, *, rank: int, step: int) -> tuple[int, float] | None:
    """How many steps beyond `step` a rank did, and their seconds, by an attempt's timing
    log; None where there is no readable log or it holds no step of that rank."""
    try:
        from sbtrain_perf.timing_log import read_timing_log

        timings = read_timing_log(path)
    except (SbtrainError, ImportError, OSError, RuntimeError, ValueError):
        return None
    for ran in timings.ranks:
        if ran.rank == rank:
            beyond = ran.step > step
            return int(beyond.sum()), float(ran.seconds[beyond].sum())
    return None
