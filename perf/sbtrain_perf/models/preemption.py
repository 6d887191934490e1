"""What interruptions cost: preemption by a more urgent job, and failing nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sbtrain_perf.models import Numbers


def resumed_s(run_s: Numbers, *, lost_share: Numbers) -> Numbers:
    """Expected seconds of a run that resumes after interruptions.

    `run_s / (1 - lost_share)`, infinite from 1 on. lost_share is the expected loss per
    second of progress: the sum over causes of hazard * (work redone + restart). First
    order: interruptions come at a constant rate and do not strike a restart.
    """
    left = 1.0 - np.asarray(lost_share)
    return np.where(left > 0.0, run_s / np.where(left > 0.0, left, 1.0), np.inf)


def restarted_s(run_s: Numbers, *, hazard_1_s: Numbers, restart_s: Numbers) -> Numbers:
    """Expected seconds of a run that starts anew after every interruption.

    `(1/hazard + restart) (exp(hazard*run) - 1)` for a constant hazard (interruptions a
    second); `run_s` where the hazard is 0.
    """
    hazard = np.asarray(hazard_1_s)
    safe = np.where(hazard > 0.0, hazard, 1.0)
    with np.errstate(over="ignore"):
        repeated_s = (1.0 / safe + restart_s) * np.expm1(np.minimum(safe * run_s, 700.0))
    return np.where(hazard > 0.0, repeated_s, run_s)
