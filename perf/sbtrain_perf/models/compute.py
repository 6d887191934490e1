"""How long one worker computes one step, communication left out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from sbtrain_perf.models import Numbers

REFERENCE_BATCH = 128
REFERENCE_TFLOPS = 4.113  # K80, one die, FP32: the GPU whose speed is 1
REFERENCE_MEMORY_BYTES_S = 2.4e11


def worker_step_s(
    parameters: Numbers,
    tensors: Numbers,
    *,
    batch: Numbers,
    speed: Numbers,
    fixed_s: float,
    activation_s: float,
    parameter_s: float,
) -> Numbers:
    """Seconds of one step (forward, backward, update) of a convolutional network.

    `fixed_s + batch/128 * (activation_s * sqrt(parameters*tensors) + parameter_s *
    parameters) / speed`: step time follows activation volume, of which
    sqrt(parameters*tensors) is a proxy. The proxy was fitted on the public CM-DARE
    measurements; the share of the batch and of the speed is our reconstruction.

    Args:
        batch: samples of one worker's step.
        speed: of the worker's device, in K80 dies (`gpu_speed`).
        fixed_s: seconds that depend on nothing.
        activation_s: seconds per sqrt(parameter * tensor), batch 128, speed 1.
        parameter_s: seconds per parameter, batch 128, speed 1.
    """
    work = activation_s * np.sqrt(parameters * tensors) + parameter_s * parameters
    return fixed_s + batch / REFERENCE_BATCH * work / speed


def gpu_speed(peak_tflops: Numbers, memory_bytes_s: Numbers) -> Numbers:
    """Speed of a GPU in K80 dies, from its published figures.

    The geometric mean of the ratios of peak and of memory bandwidth; our reconstruction:
    it gives 2.7 for the P100, whose measured ratio on CM-DARE's networks is 2.6.
    """
    return np.sqrt(
        (peak_tflops / REFERENCE_TFLOPS) * (memory_bytes_s / REFERENCE_MEMORY_BYTES_S)
    )
