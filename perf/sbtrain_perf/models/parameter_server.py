"""How fast parameter servers apply updates: what workers ask for against what servers give.

Asynchronous: a closed queue. Every worker cycles through computing and being served; the
servers can be busy all the time at most. Workers are compute-bound while few, and servers
saturated when many; the knee between is sharp, since neither time varies much. Synchronous:
all workers wait for the slowest, then for the servers to serve everybody.

Sources: the two bounds are those of every closed queueing network (Denning and Buzen, 1978);
their joint form is ours, fitted on the public CM-DARE and transient-learning cluster runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

LEARNT_LINK_S = 8e-10  # a byte: 10 Gbit/s, what a step's shipped figures are taken to hold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbtrain_perf.models import Numbers


def server_s(
    parameters: Numbers,
    tensors: Numbers,
    *,
    tensor_s: Numbers,
    parameter_byte_s: Numbers,
) -> Numbers:
    """Seconds that one server is busy with one update: tensors and bytes, 4 a parameter.

    Source: a fit on the public CM-DARE cluster runs (K80 and P100, 1 and 2 servers), in
    which the servers' capacity did not depend on the workers' GPU.
    """
    return tensor_s * tensors + parameter_byte_s * 4.0 * parameters


def linked_byte_s(parameter_byte_s: Numbers, *, link_bytes_s: Numbers) -> Numbers:
    """Seconds a server takes for one byte of an update: its own work, or its link's."""
    return np.maximum(parameter_byte_s, 1.0 / np.asarray(link_bytes_s))


def slow_link_s(parameters: Numbers, *, link_bytes_s: Numbers) -> Numbers:
    """Seconds that a link slower than 10 Gbit/s adds to every step of a worker:
    a step pulls and pushes 4 bytes a parameter."""
    return 8.0 * parameters * np.maximum(1.0 / np.asarray(link_bytes_s) - LEARNT_LINK_S, 0.0)


def shard_shares(variables: Sequence[int], servers: int) -> list[tuple[float, float]]:
    """Each server's share of the variables and of their elements.

    Servers take variables in turn, in the order of creation (TensorFlow's default). Where
    that order has an even period (kernel, bias, the four vectors of a batch norm), one of
    two servers holds every kernel, and a second one relieves it of small vectors alone.
    """
    total = sum(variables)
    shards = (variables[first::servers] for first in range(servers))
    return [(len(shard) / len(variables), sum(shard) / total) for shard in shards]


def shared_server_s(server_s: Numbers, *, servers: Numbers, sharing: Numbers) -> Numbers:
    """Seconds between two updates that `servers` servers together cannot undercut.

    `server_s / servers^sharing`: sharing 1 is a perfect split, 0 none. Tensors are handed
    out whole and in turn, so that shards are uneven; measured 0.3 to 0.8.
    """
    return server_s / servers**sharing


def cycle_s(
    step_s: Numbers, server_s: Numbers, shared_server_s: Numbers, *, waiting: Numbers
) -> Numbers:
    """Seconds from one update of a worker to its next, where nobody else is served.

    step_s was measured with one server and holds the share `waiting` of its busy time;
    further servers shorten that share: `step_s - waiting (server_s - shared_server_s)`,
    at least a third of step_s. Measured: two servers take 10 of 219 ms off ResNet-32's
    step on a K80, all that they take off the server's 24 ms: nothing overlaps.
    """
    return np.maximum(step_s - waiting * (server_s - shared_server_s), step_s / 3.0)


def updates_1_s(
    demand_1_s: Numbers, shared_server_s: Numbers, *, sharpness: Numbers
) -> Numbers:
    """Updates a second: `(demand^-g + capacity^-g)^(-1/g)`, capacity = 1/shared_server_s.

    demand_1_s is what the workers ask for: the sum of 1/cycle_s over all of them, of
    whatever kind, near or far. g = sharpness: against a simulated queue 3 where serving times
    are exponential, 5 at a coefficient of variation of 0.5, 8 at 0.3, 22 at 0.1; fitted 5 on
    CM-DARE's clusters, 11 on the transient-learning runs.
    """
    load = demand_1_s * shared_server_s
    slowed: Numbers = (1.0 + load**sharpness) ** (1.0 / sharpness)
    return demand_1_s / slowed


def update_s(
    compute_s: Numbers,
    server_s: Numbers,
    *,
    workers: Numbers,
    share: Numbers,
    sharpness: float,
) -> Numbers:
    """Seconds from one applied update to the next, all workers alike and together.

    `((compute_s/workers)^g + (server_s*share)^g)^(1/g)`: the workers' summed speed until the
    servers saturate; share = what of one server's time the busiest of them has, g = sharpness
    of the knee. The inverse of `updates_1_s`, for one kind of worker.
    """
    workers_s = compute_s / workers
    servers_s = server_s * share
    return (workers_s**sharpness + servers_s**sharpness) ** (1.0 / sharpness)


def latency_s(
    parameters: Numbers, *, round_trip_s: Numbers, fewest_rounds: float, window_bytes: float
) -> Numbers:
    """Seconds that a round-trip time adds to every step of a worker.

    `round_trip_s * max(fewest_rounds, 2 * 4 * parameters / window_bytes)`: a step pulls and
    pushes 4 bytes a parameter each way, one TCP window a round trip. Fitted on
    CM-DARE's speed_vs_latency (4 CNNs on K80, 30 ms): 2.4 rounds, 4.9 MB.
    """
    rounds = np.maximum(fewest_rounds, 8.0 * parameters / window_bytes)
    return round_trip_s * rounds
