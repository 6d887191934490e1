"""How large a checkpoint is, how long it takes, and how often it should be taken."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sbtrain_perf.models import Numbers


def checkpoint_s(size_bytes: Numbers, *, fixed_s: Numbers, byte_s: Numbers) -> Numbers:
    """`fixed_s + byte_s * size_bytes`. Linear in size: CM-DARE's best out of sample."""
    return fixed_s + byte_s * size_bytes


def interval_s(checkpoint_s: Numbers, hazard_1_s: Numbers) -> Numbers:
    """Seconds of work between checkpoints: Daly's first order `sqrt(2 C/hazard) - C`.

    Young (1974) is its limit for small C; at least C itself, where Daly's formula ends.
    hazard_1_s: interruptions a second that lose what was not saved, above 0.
    """
    young_s = np.sqrt(2.0 * checkpoint_s / hazard_1_s)
    return np.maximum(young_s - checkpoint_s, checkpoint_s)
