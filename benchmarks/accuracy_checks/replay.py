"""Public rows through the planner's own functions, as if they were runs of sbtrain.

A row that may be learnt from becomes an attempt: the plan that the planner makes of its
setting, with the measured times in its timing log. `refit` learns from all attempts at once,
and a row that is scored is planned with what was learnt. Nothing here predicts anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from sbtrain_perf.coefficients import Coefficients, load_coefficients
from sbtrain_perf.gpu_figures import PUBLISHED_GPUS
from sbtrain_perf.lifetimes import Lived, learn_lifetimes
from sbtrain_perf.models.lifetime import Lifetime
from sbtrain_perf.planner import plan_request
from sbtrain_perf.refit import refit
from sbtrain_perf.request import (
    ClusterShape,
    ModelShape,
    NodeRange,
    Partition,
    Plan,
    Request,
)
from sbtrain_perf.score.metrics import Point
from sbtrain_perf.terms import law_of
from sbtrain_perf.timing_log import AttemptTimings, Phase, RankSteps

SHIPPED = load_coefficients()
_STEPS = 20  # of a log: the first two are left out, all took what was measured
_ROOMY_GIB = 1e6  # whether a network fits is not asked here


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What ran where. gpus: of one node; batch: samples of a node's worker and step.
    servers: 0 for all-reduce."""

    workload: str
    gpu: str
    nodes: int = 1
    servers: int = 0
    gpus: int = 1
    batch: int = 128
    parameters: int | None = None
    tensors: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A row to learn from: seconds from one step to the next; saves as (seconds, bytes)."""

    setting: Setting
    step_s: float | None = None
    saves: tuple[tuple[float, float], ...] = ()


class Replay:
    """A cluster with a partition for each GPU type and number of them in a node."""

    def __init__(
        self, kinds: Iterable[tuple[str, int]], *, link_bytes_s: float = 1.25e9
    ) -> None:
        self._shape = ClusterShape(
            name="public",
            source="public measurements",
            partitions=tuple(_partition(*kind, link_bytes_s) for kind in sorted(set(kinds))),
            shared_bytes_s=1e9,
            shared_client_bytes_s=1e9,
        )

    def learnt(self, runs: Sequence[Run]) -> Coefficients:
        """What `sbtrainctl refit` learns from the runs, on top of what is shipped."""
        attempts = [self._attempt(at, run) for at, run in enumerate(runs)]
        return refit(attempts, SHIPPED).coefficients if attempts else SHIPPED

    def steps(
        self, scored: Iterable[tuple[Setting, float]], learnt: Coefficients
    ) -> list[Point]:
        """Settings and the seconds that their steps took, beside the planned ones."""
        plans: dict[Setting, Plan] = {}
        points = []
        for setting, seconds in scored:
            if setting not in plans:
                plans[setting] = self.planned(setting, learnt)
            said = plans[setting].prediction
            points.append(
                Point(
                    measured=seconds,
                    predicted=said.step_s,
                    low=said.step_low_s,
                    high=said.step_high_s,
                )
            )
        return points

    def planned(self, setting: Setting, learnt: Coefficients) -> Plan:
        """The only row that the request leaves: so many nodes, in this layout."""
        request = Request(
            script="train.py",
            workload=setting.workload,
            partition=_name(setting.gpu, setting.gpus),
            layout="ps" if setting.servers else "allreduce",
            servers=setting.servers or None,
            nodes=NodeRange(low=setting.nodes, high=setting.nodes),
            steps=1000,
            batch_per_worker=setting.batch,
            model=ModelShape(parameters=setting.parameters, tensors=setting.tensors),
            resumable=True,
        )
        plan = plan_request(request, self._shape, learnt, run_id="r", run_dir="/r").chosen
        assert plan is not None, setting
        return plan

    def _attempt(self, at: int, run: Run) -> AttemptTimings:
        plan = dataclasses.replace(self.planned(run.setting, SHIPPED), run_id=f"run-{at:06}")
        ranks: tuple[RankSteps, ...] = ()
        if run.step_s is not None:
            steps = RankSteps(
                rank=0,
                step=np.arange(1, _STEPS + 1),
                seconds=np.full(_STEPS, run.step_s),
                samples_per_step=run.setting.batch,
            )
            ranks = (steps,)
        phases = tuple(
            Phase(name="checkpoint", seconds=took_s, at_s=1.0, numbers={"size_bytes": size})
            for took_s, size in run.saves
        )
        return AttemptTimings(plan=plan, attempt=0, phases=phases, ranks=ranks)


def planned_law(lived: Sequence[Lived]) -> Lifetime:
    """The law that refit learns of a partition whose site states nothing; what is assumed
    where nothing was learnt."""
    learnt = learn_lifetimes(lived, SHIPPED).entries
    if learnt:
        return law_of(learnt[0])
    return Lifetime.exponential(1.0 / SHIPPED.base.failure.unknown_preemption_s.value)


def as_rates(points: Iterable[Point]) -> list[Point]:
    """Points in seconds a step as points in steps a second."""
    return [
        Point(
            measured=1.0 / point.measured,
            predicted=1.0 / point.predicted,
            low=1.0 / point.high if point.high else None,
            high=1.0 / point.low if point.low else None,
        )
        for point in points
    ]


def _name(gpu: str, gpus: int) -> str:
    return f"{gpu}x{gpus}"


def _partition(gpu: str, gpus: int, link_bytes_s: float) -> Partition:
    return Partition(
        name=_name(gpu, gpus),
        nodes=1000,
        max_nodes_per_job=1000,
        cores_per_node=16,
        memory_gib_per_node=_ROOMY_GIB,
        gpu=dataclasses.replace(PUBLISHED_GPUS[gpu], memory_gib=_ROOMY_GIB),
        gpus_per_node=gpus,
        network_bytes_s=link_bytes_s,
    )
