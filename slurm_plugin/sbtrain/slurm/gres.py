"""Slurm's words for generic resources: ``gpu:k80:2(S:0-1),shard:8``."""

from __future__ import annotations

import re

from sbtrain.slurm.client import Gres

_BEYOND_COUNT = re.compile(r"\([^)]*\)")
_FACTORS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}


def read_gres(text: str) -> tuple[Gres, ...]:
    """What a node has or a job asks for; words without a count stand for one."""
    found = []
    for word in _BEYOND_COUNT.sub("", text).split(","):
        parts = word.strip().removeprefix("gres:").removeprefix("gres/").split(":")
        if parts[0] in {"", "N/A", "(null)"}:
            continue
        counted = re.fullmatch(r"(\d+)([KMGT]?)", parts[-1]) if len(parts) > 1 else None
        found.append(
            Gres(
                name=parts[0],
                kind=":".join(parts[1:-1] if counted else parts[1:]),
                count=int(counted[1]) * _FACTORS[counted[2]] if counted else 1,
            )
        )
    return tuple(found)
