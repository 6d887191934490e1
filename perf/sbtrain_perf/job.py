"""What a request asks of any partition, gaps filled."""

from __future__ import annotations

import math
from dataclasses import dataclass

from sbtrain_perf.coefficients import Coefficients, learnt_model
from sbtrain_perf.errors import PlanError
from sbtrain_perf.hardware import AskedHardware
from sbtrain_perf.request import Request

ASSUMED_STEPS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request with nothing left open.

    steps: fixed for every plan; 0 where samples (all epochs together) are to be trained on.
    known: some run of this workload has been learnt from.
    assumptions: in words, what stands in for what the request leaves open. hardware: what
    the user's own sbatch options ask of nodes. fullest_shards: of 2, 3, ... parameter servers
    the share of the network that the fullest holds; none where no run told.
    """

    request: Request
    parameters: int
    tensors: int
    parameters_known: bool
    steps: int
    samples: float
    checkpoint_bytes: float
    known: bool
    assumptions: tuple[str, ...]
    hardware: AskedHardware
    fullest_shards: tuple[float, ...] = ()


def job_of(request: Request, coefficients: Coefficients) -> Job:
    """Raises PlanError where epochs are asked for but the samples of one are not known."""
    base = coefficients.base
    learnt = learnt_model(coefficients, request.workload)
    given = request.model.parameters or (learnt.parameters if learnt else None)
    parameters = given or int(base.unknown_model.parameters.value)
    tensors = (
        request.model.tensors
        or (learnt.tensors if learnt else None)
        or int(base.unknown_model.tensors.value)
    )
    assumptions = []
    if not given:
        assumptions.append(f"a network of {parameters / 1e6:.2g} M parameters")
    steps, samples = _work(request)
    if request.steps is None and request.epochs is None:
        assumptions.append("1 epoch" if samples else f"{ASSUMED_STEPS} steps")
    size = learnt.checkpoint_bytes if learnt else 0
    return Job(
        request=request,
        parameters=parameters,
        tensors=tensors,
        parameters_known=bool(given),
        steps=steps,
        samples=samples,
        checkpoint_bytes=size or base.checkpoint.parameter_bytes.value * parameters,
        known=any(s.workload == request.workload for s in coefficients.learnt.steps),
        assumptions=tuple(assumptions),
        hardware=AskedHardware.of(request.sbatch_options),
        fullest_shards=learnt.fullest_shards if learnt else (),
    )


def _work(request: Request) -> tuple[int, float]:
    """(steps, samples): one of them is 0."""
    if request.batch_per_worker < 1:
        raise PlanError(
            f"a batch of {request.batch_per_worker} samples is not possible",
            hint="--train-batch takes a whole number from 1",
        )
    if request.steps is not None:
        if request.steps < 1:
            raise PlanError(
                f"{request.steps} steps are nothing to train", hint="--train-steps N"
            )
        return request.steps, 0.0
    if request.epochs is None and not request.data.samples:
        return ASSUMED_STEPS, 0.0
    epochs = 1.0 if request.epochs is None else request.epochs
    if not request.data.samples:
        raise PlanError(
            "epochs are asked for, but the number of samples in the data set is not known",
            hint="give --train-steps instead, or --train-data an HDF5 file",
        )
    if not (epochs > 0 and math.isfinite(epochs)):
        raise PlanError(f"{epochs:g} epochs are nothing to train", hint="--train-epochs N")
    return 0, epochs * request.data.samples
