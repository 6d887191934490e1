"""How long synchronous all-reduce training takes for one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbtrain_perf.models import Numbers


def transfer_s(parameters: Numbers, *, link_bytes_s: Numbers, efficiency: float) -> Numbers:
    """Seconds that the gradients (4 bytes a parameter) take over one node's link."""
    return 4.0 * parameters / (link_bytes_s * efficiency)


def step_s(
    compute_s: Numbers, transfer_s: Numbers, hop_s: Numbers, *, nodes: Numbers
) -> Numbers:
    """Seconds of one synchronous step on `nodes` nodes, one worker a node.

    `compute_s + 2 (n-1)/n transfer_s + 2 (n-1) hop_s`: a ring moves every gradient byte
    twice but for 1/n of it, in 2 (n-1) hops; nothing overlaps. Source: the textbook
    ring (Patarasuk and Yuan, 2009); no overlap is our reconstruction, on the safe side.
    """
    others = nodes - 1.0
    return compute_s + 2.0 * others / nodes * transfer_s + 2.0 * others * hop_s
