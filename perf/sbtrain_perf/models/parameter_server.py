"""How fast asynchronous parameter servers apply updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbtrain_perf.models import Numbers


def server_s(
    parameters: Numbers,
    tensors: Numbers,
    *,
    tensor_s: float,
    parameter_byte_s: float,
) -> Numbers:
    """Seconds that one server is busy with one update: tensors and bytes, 4 a parameter.

    Source: a fit on the public CM-DARE cluster runs (K80 and P100, 1 and 2 servers), in
    which the servers' capacity did not depend on the workers' GPU.
    """
    return tensor_s * tensors + parameter_byte_s * 4.0 * parameters


def update_s(
    compute_s: Numbers,
    server_s: Numbers,
    *,
    workers: Numbers,
    servers: Numbers,
    sharing: float,
    sharpness: float,
) -> Numbers:
    """Seconds from one applied update to the next, all workers together.

    `((compute_s/workers)^g + (server_s/servers^sharing)^g)^(1/g)`: the workers' summed
    speed until the servers saturate; g = sharpness of the knee. Source as `server_s`: mean
    error 5.8 % over 96 configurations, 13.7 % fitted on up to 4 workers and scored past.
    """
    workers_s = compute_s / workers
    servers_s = server_s / servers**sharing
    return (workers_s**sharpness + servers_s**sharpness) ** (1.0 / sharpness)
