"""How long it takes from the allocation's start (data aside) to the first step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbtrain_perf.models import Numbers


def start_s(nodes: Numbers, *, fixed_s: Numbers, node_s: Numbers) -> Numbers:
    """`fixed_s + node_s * nodes`: imports, rendezvous and the traced first step."""
    return fixed_s + node_s * nodes
