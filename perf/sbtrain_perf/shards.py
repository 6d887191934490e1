"""How an update falls on parameter servers, by what each of them holds.

Servers take variables whole and in turn (models.parameter_server.shard_shares). Where runs told
the sizes of theirs, the busiest server's share is known; else `servers^-sharing` stands for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.coefficients import Base
from sbtrain_perf.models.parameter_server import server_s, shard_shares
from sbtrain_perf.timing_log import AttemptTimings

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

MOST = 16  # servers of which a log says what the fullest holds
_NAME = "fullest_of_{}"


def shard_numbers(variables: Sequence[int]) -> dict[str, float]:
    """What a timing log keeps of the sizes of variables, in the order of their creation: of 2
    to MOST servers the share of all elements that the fullest one holds."""
    if not variables or min(variables) < 0 or not sum(variables):
        return {}
    return {
        _NAME.format(servers): round(max(of for _, of in shard_shares(variables, servers)), 4)
        for servers in range(2, min(MOST, len(variables)) + 1)
    }


def told_shares(timings: AttemptTimings) -> tuple[float, ...]:
    """The same, read back: of 2, 3, ... servers; none where nobody told."""
    found = []
    for servers in range(2, MOST + 1):
        share = timings.described(_NAME.format(servers))
        if share is None or not 0.0 < share <= 1.0:
            break
        found.append(share)
    return tuple(found)


def server_shares(
    fullest: Sequence[float], *, parameters: float, tensors: float, base: Base, most: int
) -> Floats:
    """What of one server's time for an update is left to the busiest of 0, 1, ... `most`.

    Tensors fall evenly, elements as told; more servers than are told of are taken to hold no
    less than the last that is.

    Args:
        fullest: as told_shares has it.
    """
    servers = np.arange(most + 1, dtype=np.float64).clip(1.0)
    if not fullest:
        return servers**-base.server.sharing.value
    server = base.server
    constants = {
        "tensor_s": server.tensor_s.value,
        "parameter_byte_s": server.parameter_byte_s.value,
    }
    tensors_s = float(server_s(0.0, tensors, **constants))
    elements_s = float(server_s(parameters, 0.0, **constants))
    told = np.array((1.0, 1.0, *fullest))
    held = told[np.minimum(np.arange(most + 1), len(told) - 1)]
    alone_s = tensors_s + elements_s
    return np.asarray((tensors_s / servers + elements_s * held) / alone_s)
