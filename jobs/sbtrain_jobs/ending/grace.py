"""How long trainers have from a notice until they must have ended: pure functions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from sbtrain_jobs.ending.job_control import EndCause
from sbtrain_perf.request import Plan

SIGNAL_WARNING_S = 60.0
FAILED_GRACE_S = 5.0  # from TERM to KILL for the others when one role has failed


def window_s(plan: Plan, *, cause: EndCause, detail: str) -> float:
    """Seconds from the notice in which trainers may save.

    detail: how the notice came, as the ledger has it.
    """
    if cause == "preempted":
        return max(1.0, plan.warned_s - 2.0)
    if cause == "time-limit" and detail.startswith("SIGTERM"):  # that is over
        return max(1.0, plan.kill_wait_s - 2.0)
    return max(1.0, warning_s(plan.sbatch_options) - 5.0)


def warning_s(sbatch_options: Sequence[str]) -> float:
    """Seconds before the time limit at which Slurm sends the user signal: the @N of the
    last --signal among the options; sbatch's own default is 60, and that of a bare @ is 0."""
    found = SIGNAL_WARNING_S
    for place, option in enumerate(sbatch_options):
        name, equals, value = option.partition("=")
        if name != "--signal":
            continue
        if not equals and place + 1 < len(sbatch_options):
            value = sbatch_options[place + 1]
        _, at, seconds = value.partition("@")
        if not at:
            found = SIGNAL_WARNING_S
        elif re.fullmatch(r"\s*[+-]?\d+", seconds, re.ASCII):
            found = float(seconds)
        else:
            found = 0.0
    return found


def signal_is_ours(sbatch_options: Sequence[str]) -> bool:
    """Whether the user has asked for no --signal of his own: his stands last of all options."""
    return not (sbatch_options and sbatch_options[-1].startswith("--signal="))
