"""How a job of a run stands, from what its ledger holds and what Slurm says: pure functions.

The run's own ledger knows why an attempt ended, Slurm whether the job is still there. So an
end in the ledger counts, unless Slurm shows that the job came back after it.
"""

from __future__ import annotations

import os
import pwd
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sbtrain.slurm.client import HistoryRow, JobInfo
from sbtrain.slurm.states import MAY_RESTART, OVER, JobState
from sbtrain_jobs.record.ledger import END_CAUSES_FINAL, AttemptRecord, seconds_between
from sbtrain_jobs.wire.messages import EXIT_STOPPED
from sbtrain_perf.wording import duration

UNKNOWN, LOST, GONE = "unknown", "lost", "gone-from-queue"

_ON_NODES = {
    *(JobState.RUNNING, JobState.COMPLETING, JobState.SUSPENDED, JobState.STOPPED),
    *(JobState.RESIZING, JobState.SIGNALING),
}
_UNNAMED = ("none", "unknown", "requeued")  # causes that say nothing of why
# What the state, an exit status or a signal says again.
_SAID = {
    *("", "None", "NonZeroExitCode", "RaisedSignal", "TimeLimit", "OutOfMemory", "NodeDown"),
    "Cancelled",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSays:
    """What Slurm says of one job, where job is slurmctld's record.

    rows: the accounting's, the oldest first, where slurmctld has forgotten the job. silence:
    why Slurm does not tell, empty where it does. down: those nodes of the last attempt that
    are lost now, as far as that was asked.
    """

    job: JobInfo | None = None
    rows: tuple[HistoryRow, ...] = ()
    silence: str = ""
    down: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """state: Slurm's word in small letters, the cause of an end that the ledger holds, or one
    of the three above. going: the last attempt has its nodes, as far as is known. over:
    nothing of it is to come. ended_at: ISO 8601, once it is over."""

    state: str
    reason: str = ""
    going: bool = False
    over: bool = False
    ended_at: str = ""


def standing(attempts: Sequence[AttemptRecord], says: SlurmSays) -> Standing:
    last = attempts[-1] if attempts else None
    stay = _stay(says)
    if stay is None:
        return _silent(last, says.silence) if says.silence else _forgotten(last)
    end = _end(last)
    if last is not None and end is not None and not _after(stay, last):
        came_back = last.requeued and not stay.in_queue
        if end.over or (stay.over and not came_back):
            return replace(end, reason=_joined(_beside(stay, end), end.reason), over=True)
        if not stay.in_queue:
            return _forgotten(last)
    going = _is_going(stay, last)
    left = "" if going else _left_no_end(last, says.down)
    if not stay.in_queue and not stay.over:
        word = stay.text.lower()
        why = f"the accounting still calls it {word}, and slurmctld does not know it"
        return Standing(state=LOST, reason=_joined(why, left), over=True)
    return Standing(
        state=stay.text.lower() if stay.state == JobState.UNKNOWN else str(stay.state),
        reason=_joined(_words(stay), left),
        going=going,
        over=stay.over,
        ended_at=_iso(stay.end_s) if stay.over else "",
    )


def recorded_end(last: AttemptRecord | None) -> Standing | None:
    """What the ledger says of the last attempt's end; None where it holds none, or the job is
    to come back after it. Where it is not over, Slurm may put the job back by its own rule."""
    end = _end(last)
    if last is None or end is None or end.over:
        return end
    left_to_slurm = last.exit_code == EXIT_STOPPED and not last.requeue_failed
    return None if last.requeued or left_to_slurm else end


def _end(last: AttemptRecord | None) -> Standing | None:
    if last is None or not last.ended_at:
        return None
    state, why = last.cause, last.detail.removeprefix("error: ")
    if state == "cancelled":
        why = ""  # says that again
    if state in _UNNAMED:
        state, why = "failed", _joined("told to stop, and Slurm did not say why", why)
    status = f"exit status {last.exit_code}" if state == "failed" and last.exit_code else ""
    status = "" if why.endswith(status) else status
    return Standing(
        state=state,
        reason=_joined(why, status),
        over=last.cause in END_CAUSES_FINAL,
        ended_at=last.ended_at,
    )


def _silent(last: AttemptRecord | None, silence: str) -> Standing:
    end = recorded_end(last)
    if end is None:
        going = last is not None and not last.ended_at
        return Standing(state=UNKNOWN, reason=silence, going=going)
    if end.over:
        return end
    return replace(end, reason=_joined(end.reason, f"whether it comes back: {silence}"))


def _forgotten(last: AttemptRecord | None) -> Standing:
    """Neither slurmctld nor the accounting knows the job."""
    forgotten, waited = "Slurm no longer knows the job", "most likely cancelled while it waited"
    if last is None:
        why = f"no attempt began, and {forgotten}: {waited}"
        return Standing(state=GONE, reason=why, over=True)
    if (end := _end(last)) is not None:
        if not end.over and last.requeued:
            back = f"put back after attempt {last.attempt} ({last.cause}), did not begin again"
            return Standing(state=GONE, reason=f"{back}, and {forgotten}: {waited}", over=True)
        why = "" if end.over else "as its own ledger says"
        return replace(end, reason=_joined(end.reason, why), over=True)
    cause = last.notices[-1] if last.notices else ""
    if cause in ("cancelled", "time-limit"):  # after the others it may have come back
        return Standing(state=cause, reason="killed before it had written its end", over=True)
    return Standing(state=LOST, reason=_joined(forgotten, _left_no_end(last, ())), over=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stay:
    """The job's newest stay in the queue and on its nodes, by Slurm's word. number: how often
    it had been requeued before. in_queue: slurmctld knows it."""

    state: JobState
    text: str
    reason: str
    nodes: str
    start_s: float | None
    end_s: float | None
    limit_s: int | None
    exit_code: int
    exit_signal: int
    number: int
    over: bool
    in_queue: bool
    down: tuple[str, ...]


def _stay(says: SlurmSays) -> _Stay | None:
    known = says.job or (says.rows[-1] if says.rows else None)
    if known is None:
        return None
    job = known if isinstance(known, JobInfo) else None
    last_words = says.rows[-1].state_text if says.rows else known.state_text
    return _Stay(
        state=known.state,
        text=last_words if known.state == JobState.CANCELLED else known.state_text,
        reason=known.reason,
        nodes=known.nodes,
        start_s=known.start_time_s,
        end_s=known.end_time_s,
        limit_s=known.time_limit_s,
        exit_code=known.exit_code,
        exit_signal=known.exit_signal,
        number=job.restarts if job else len(says.rows) - 1,
        over=job.over if job else known.state in OVER | MAY_RESTART,
        in_queue=job is not None,
        down=says.down,
    )


def _after(stay: _Stay, last: AttemptRecord | None) -> bool:
    """Whether the stay began after the attempt, of which it is none then."""
    # Of a job that is being put back Slurm counts that while it still runs.
    counted_early = stay.state == JobState.COMPLETING
    if last is None or stay.number - counted_early > last.attempt:
        return True
    if stay.start_s is None or not last.ended_at:
        return False
    passed_s = seconds_between(last.ended_at, _iso(stay.start_s))
    return passed_s is not None and passed_s > 0


def _is_going(stay: _Stay, last: AttemptRecord | None) -> bool:
    if last is None or last.ended_at or not stay.in_queue:
        return False
    return stay.state in _ON_NODES and not _after(stay, last)


def _beside(stay: _Stay, end: Standing) -> str:
    """What Slurm knows of an end beside the ledger."""
    if end.state == "failed" and stay.state == JobState.OUT_OF_MEMORY:
        return "out of memory"
    return _canceller(stay) if end.state == "cancelled" else ""


def _words(stay: _Stay) -> str:
    """Why it is in this state, in words; of one that waits Slurm's own."""
    said = "" if stay.reason in _SAID else stay.reason
    if not stay.over:
        return said
    on = f" on {stay.nodes}" if stay.nodes else ""
    match stay.state:
        case JobState.CANCELLED:
            return _canceller(stay) or said
        case JobState.TIMEOUT if stay.limit_s:
            return f"its time of {duration(stay.limit_s)} was over"
        case JobState.OUT_OF_MEMORY:
            return f"a process needed more memory than the job has{on}"
        case JobState.NODE_FAIL | JobState.BOOT_FAIL if not stay.down:
            return f"a node was lost{on}"
        case JobState.PREEMPTED:
            return _joined(said, "Slurm does not put it back")
        case JobState.COMPLETED:
            return said
    return _joined(said, _exit(stay))


def _exit(stay: _Stay) -> str:
    if stay.exit_signal:
        try:
            name = signal.Signals(stay.exit_signal).name.removeprefix("SIG")
        except ValueError:
            name = str(stay.exit_signal)
        return f"ended by the signal {name}"
    return f"exit status {stay.exit_code}" if stay.exit_code else ""


def _canceller(stay: _Stay) -> str:
    found = re.search(r"by (\d+)", stay.text)
    if found is None:
        return ""
    if int(found[1]) == os.getuid():
        return "by you"
    try:
        return f"by {pwd.getpwuid(int(found[1])).pw_name}"
    except (KeyError, OverflowError):
        return f"by the user of number {found[1]}"


def _left_no_end(last: AttemptRecord | None, down: Sequence[str]) -> str:
    if last is None or last.ended_at:
        return ""
    lost = ""
    if down:
        lost = f": {', '.join(down)} {'is' if len(down) == 1 else 'are'} down"
    return f"attempt {last.attempt} left no end{lost}"


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _iso(moment_s: float | None) -> str:
    return "" if moment_s is None else datetime.fromtimestamp(moment_s, UTC).isoformat()
