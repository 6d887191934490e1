"""Attempts as the timing log gives them back, made from known truths; a learnt step."""

from __future__ import annotations

import dataclasses

import numpy as np

from plans import example_plan
from sbtrain_perf.coefficients import LearntStep
from sbtrain_perf.models.allreduce import link_loads, step_s
from sbtrain_perf.request import Basis, Layout
from sbtrain_perf.timing_log import AttemptTimings, Phase, RankSteps

BASIS = Basis(
    parameters=1_857_722,
    tensors=104,
    compute_s=0.05,
    transfer_s=0.02,
    hop_s=0.0001,
    server_s=0.021,
    stage_bytes_s=5e8,
    link_bytes_s=1.25e9,
    checkpoint_byte_s=7e-9,
)


def synchronous_s(compute_s: float, transfer_s: float, hop_s: float, *, nodes: float) -> float:
    """An all-reduce step on nodes of one worker and no GPU, at the shipped sharpness."""
    loads = link_loads(0.0)
    return float(step_s(compute_s, transfer_s, hop_s, nodes=nodes, loads=loads, sharpness=2.0))


def attempt(
    *,
    run_id: str = "run-1",
    layout: Layout = "allreduce",
    nodes: int = 2,
    servers: int = 0,
    step_s: float = 0.2,
    start_s: float = 9.0,
    stage_s: float = 2.0,
    stage_bytes: float = 10**8,
    saves: tuple[tuple[float, float], ...] = ((0.6, 10**7),),
    steps: int = 200,
    noise: float = 0.0,
    seed: int = 1,
    **changes: object,
) -> AttemptTimings:
    """saves: (seconds, bytes) of each checkpoint. noise: of each step's logarithm.

    The first step takes 1.5 s more, which is part of start_s.
    """
    plan = dataclasses.replace(
        example_plan(),
        run_id=run_id,
        layout=layout,
        nodes=nodes,
        servers=servers,
        workers=nodes - servers,
        basis=BASIS,
        **changes,
    )
    random = np.random.default_rng(seed)
    seconds = step_s * np.exp(random.normal(0.0, noise, steps))
    seconds[0] += 1.5
    phases = [
        Phase(name="queue", seconds=5.0, at_s=-5.0, numbers={}),
        Phase(name="stage", seconds=stage_s, at_s=0.5, numbers={"size_bytes": stage_bytes}),
        Phase(
            name="start",
            seconds=start_s - 2.0,
            at_s=stage_s + 0.5,
            numbers={"rank": 0.0, "parameters": 77_850.0, "tensors": 8.0},
        ),
        *(
            Phase(name="checkpoint", seconds=took, at_s=50.0, numbers={"size_bytes": size})
            for took, size in saves
        ),
    ]
    rank = RankSteps(rank=0, step=np.arange(1, steps + 1), seconds=seconds, samples_per_step=32)
    return AttemptTimings(plan=plan, attempt=1, phases=tuple(phases), ranks=(rank,))


def example_step(**changes: object) -> LearntStep:
    """An all-reduce step of the workload `digits`, learnt on the partition `small`."""
    step = LearntStep(
        cluster="test",
        workload="digits",
        partition="small",
        layout="allreduce",
        batch_per_worker=64,
        compute_s=0.5,
        transfer_s=0.08,
        hop_s=0.01,
        server_s=0.0,
        nodes=(2,),
        runs=("run-1",),
    )
    return dataclasses.replace(step, **changes)
