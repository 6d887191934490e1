"""How long one worker takes for one step, from features of its network and its GPU.

``T = fixed + tensors * t_tensor + A * t_activation + W * t_work`` at one batch size, with
A the activation volume (or its proxy sqrt(parameters * tensors)) and W the multiply-adds
(or parameters, which they follow in networks of one family). Physically: what depends on
nothing, the many small kernels of a layer, memory traffic, arithmetic. Coefficients are
non-negative and belong to one GPU. Our own forms; measured on CM-DARE's 20 CNNs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sbtrain_perf.models import Numbers
    from sbtrain_perf.request import GpuType

# Weight of the resource that grew less in a GPU's relative speed; the rest is the other's.
# From K80 against P100 on CM-DARE's networks: 2.54 = 2.32^0.66 * 3.05^0.34. Our fit.
SCARCE_SHARE = 0.66


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTerms:
    """Coefficients of one GPU at one batch size, in seconds per unit of each feature."""

    fixed_s: float
    tensor_s: float
    activation_s: float  # per sqrt(parameter * tensor)
    parameter_s: float
    batch: int


def step_s(
    parameters: Numbers, tensors: Numbers, *, batch: Numbers, terms: StepTerms
) -> Numbers:
    """Seconds of one step: all but the fixed part and the tensors' grows with the batch.

    The share of the batch is our reconstruction: CM-DARE measured batch 128 alone.
    """
    per_layer = terms.fixed_s + terms.tensor_s * tensors
    proxy: Numbers = (parameters * tensors) ** 0.5
    per_sample = terms.activation_s * proxy + terms.parameter_s * parameters
    return per_layer + per_sample * batch / terms.batch


def speed_ratio(gpu: GpuType, reference: GpuType) -> float:
    """How many times faster than the reference a GPU trains a network.

    ``min(b, p)^0.66 max(b, p)^0.34`` with b and p the ratios of memory bandwidth and of FP32
    peak: the resource that grew less bounds most layers. Networks scatter by 15 % about it.
    """
    ratios = (ours / theirs for ours, theirs in zip(gpu.rates, reference.rates, strict=True))
    scarce, ample = sorted(ratios)
    return math.pow(scarce, SCARCE_SHARE) * math.pow(ample, 1.0 - SCARCE_SHARE)
