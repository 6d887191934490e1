"""What no coefficients file may say: signs, zeros, and laws of lifetimes that are none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from sbtrain_perf.codec import ShapeError

_MUST_EXCEED_ZERO = {
    "cpu_core_speed",
    "sharpness",
    "most_servers",
    "efficiency",
    "node_mtbf_s",
    "unknown_preemption_s",
    "parameters",
    "tensors",
    "rate_bytes_s",
    "batch_per_worker",
    "workers_per_node",
    "run",
    "noise_samples",
    "mean_s",
    "ratio",
}


class LifetimeLaw(Protocol):
    """Hazards by the age of an attempt: one more than the edges between them."""

    @property
    def edges_s(self) -> tuple[float, ...]: ...
    @property
    def hazards_1_s(self) -> tuple[float, ...]: ...
    @property
    def mean_s(self) -> float: ...


def check_signs(data: object, *, path: str) -> None:
    """No coefficient but a covariance is negative, and none that is divided by is 0.

    data: as JSON has it, of a shape that is known to be right.
    """
    if isinstance(data, dict):
        for key, entry in data.items():
            if key == "covariance":
                continue
            place = f"{path}.{key}"
            number = entry["value"] if isinstance(entry, dict) and "value" in entry else entry
            if type(number) in (int, float):
                if number < 0 or (number == 0 and key in _MUST_EXCEED_ZERO):
                    raise ShapeError(place, f"{number} is out of range")
            else:
                check_signs(entry, path=place)
    elif isinstance(data, list):
        for index, entry in enumerate(data):
            if isinstance(entry, dict):
                check_signs(entry, path=f"{path}[{index}]")


def check_lifetimes(lifetimes: Sequence[LifetimeLaw]) -> None:
    for index, one in enumerate(lifetimes):
        place = f"learnt.lifetimes[{index}]"
        starts = (0.0, *one.edges_s)
        if len(one.hazards_1_s) != len(starts) or any(
            later <= earlier for earlier, later in pairwise(starts)
        ):
            raise ShapeError(place, "not ascending edges with one more hazard than edges")
        if not all(map(math.isfinite, (*one.edges_s, *one.hazards_1_s, one.mean_s))):
            raise ShapeError(place, "a number is not finite")
        if min(one.hazards_1_s) < 0.0:
            raise ShapeError(place, "a hazard is negative")
