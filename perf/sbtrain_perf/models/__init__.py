"""Closed forms: seconds of each part of a training run.

Every function takes numbers or numpy arrays of one broadcastable shape (`Numbers`) and
returns the same. Units stand in the names. The planner's bounds rest on how the forms grow
with the number of nodes: staging, start-up and hazards never fall, nor does `step_s` of
all-reduce from three nodes on (two may be slower), `step_s` of parameter servers never rises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    from numpy.typing import NDArray

    Numbers: TypeAlias = float | NDArray[np.float64]
