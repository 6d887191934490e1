"""The yardstick: Pollux's own model of an all-reduce step, one workload at a time.

`T_grad = a_c + b_c m`; `T_sync` = 0 for one replica, `a_r + b_r (K-2)` in one node,
`a_n + b_n (K-2)` over several; `T = (T_grad^g + T_sync^g)^(1/g)`, g in [1, 10]; fitted on
log errors with weak priors. Source: Qiao et al., "Pollux: Co-adaptive cluster scheduling
for goodput-optimized deep learning", OSDI 2021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import least_squares

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sbtrain_perf.fitting.allreduce import StepRows

    Floats = NDArray[np.float64]

PRIOR_WEIGHT = 0.01


class PolluxModel:
    """Rows of one workload. Seconds throughout."""

    def __init__(self, rows: StepRows) -> None:
        base = max(float(np.min(rows.step_s)), 1e-6)
        start = np.array([base / 2, base / 100, base / 10, base / 1e3, base / 5, base / 1e3, 2])
        scale = np.maximum(start, 1e-9)

        def residuals(x: Floats) -> Floats:
            error = np.log(_step_s(x * scale, rows) / rows.step_s)
            prior = PRIOR_WEIGHT * (x[[3, 5]] - 1.0)
            return np.concatenate([error, prior])

        result = least_squares(
            residuals,
            np.ones(7),
            bounds=(np.r_[np.full(6, 1e-6), 1.0 / scale[6]], np.r_[[1e5] * 6, 10 / scale[6]]),
        )
        self._x: Floats = result.x * scale

    def predict(self, rows: StepRows) -> Floats:
        return _step_s(self._x, rows)


def _step_s(x: Floats, rows: StepRows) -> Floats:
    a_c, b_c, a_r, b_r, a_n, b_n, g = x
    extra = np.maximum(rows.replicas - 2.0, 0.0)
    sync = np.where(rows.nodes > 1, a_n + b_n * extra, a_r + b_r * extra)
    sync = np.where(rows.replicas > 1, sync, 0.0)
    step: Floats = ((a_c + b_c * rows.batch) ** g + sync**g) ** (1.0 / g)
    return step
