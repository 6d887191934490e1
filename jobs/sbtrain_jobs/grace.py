"""How long trainers have from a notice until they must have ended: pure functions."""

from __future__ import annotations

from sbtrain_jobs import launch
from sbtrain_jobs.job_control import EndCause
from sbtrain_perf.request import Plan

FAILED_GRACE_S = 5.0  # from TERM to KILL for the others when one role has failed
LATE_WINDOW_S = 10.0  # the time is over already and TERM came: KILL follows soon


def window_s(plan: Plan, *, cause: EndCause, detail: str) -> float:
    """Seconds from the notice in which trainers may save.

    detail: how the notice came, as the ledger has it.
    """
    if cause == "preempted":
        return max(1.0, plan.grace_s - 2.0)
    if cause == "time-limit" and detail.startswith("SIGTERM"):
        return LATE_WINDOW_S
    return max(1.0, launch.warning_s(plan.sbatch_options) - 5.0)
