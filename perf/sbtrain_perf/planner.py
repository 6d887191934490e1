"""Chooses partition, layout and nodes: every candidate is weighed, exactly.

The objective's least row wins; among equals the one with the fewest nodes. What price a gain
of time is worth is said in sbtrain_perf.near_tie; partitions whose jobs push others aside are
left to those who ask for them, and to deadlines that nothing else keeps. Work is
given by epochs (all-reduce on n nodes takes epochs * samples / (n * batch) steps; servers
apply epochs * samples / batch updates) or by steps, which then are the same for every row:
more nodes train on more samples, not faster.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

# isort: off
import sbtrain_perf.single_thread  # noqa: F401  before anything else imports numpy

import numpy as np

# isort: on
from sbtrain_perf.coefficients import Coefficients
from sbtrain_perf.decision import Decision, Rest, Row, odds_in_words, why_not
from sbtrain_perf.limit_risk import SAFE
from sbtrain_perf.limits import set_aside
from sbtrain_perf.placement import most_workers, roles_of, workers_per_node
from sbtrain_perf.predict import Candidates, Forecast
from sbtrain_perf.reasons import (
    choice_reason,
    chosen_notes,
    notes,
    refusal,
    risks,
    why_never,
)
from sbtrain_perf.request import ClusterShape, Partition, Plan, Prediction, Request
from sbtrain_perf.room import layout_of
from sbtrain_perf.search import count_rows, expand
from sbtrain_perf.weighing import Weighing
from sbtrain_perf.wording import count

LISTED_ROWS = 400  # up to so many candidates are all listed
HOPELESS = 0.01  # a deadline that is kept with less is refused
LISTED_PAIRS = 12  # past that, the best row of so many pairs of partition and layout


def plan_request(
    request: Request,
    shape: ClusterShape,
    coefficients: Coefficients,
    *,
    run_id: str,
    run_dir: str,
    queue_waits: Mapping[str, float] | None = None,
) -> Decision:
    """Decide where and how a request runs.

    Args:
        queue_waits: seconds that a job would wait now, by partition; 0 where not given.

    Raises:
        PlanError: the request does not say enough to predict anything. A request that no
            row satisfies is not an error here: `chosen` is None and `refusal` says why.
    """
    weighing, choice = _weighed(request, shape, coefficients, queue_waits or {})
    total = count_rows(weighing.lanes)
    candidates = weighing.in_order(_listed(weighing, choice, total))
    forecast = weighing.by_law(candidates)
    rows = _rows(weighing, choice, candidates, forecast)
    rows.sort(key=lambda row: not row.chosen)
    plan = None
    said: tuple[str, ...] = ()
    may_lose: tuple[str, ...] = ()
    if choice is not None:
        reason = choice_reason(rows, weighing, shape.currency)
        plan = _plan(weighing, choice, shape, coefficients, reason, run_id, run_dir)
        said = chosen_notes(weighing, plan, shape, odds=choice.odds)
        may_lose = risks(weighing, plan, kept=choice.kept)
    unlisted = total - len(rows)
    return Decision(
        chosen=plan,
        rows=(*rows, *weighing.refused),
        objective=request.objective,
        considered=total + len(weighing.refused),
        rest=(Rest(rows=unlisted, reason=_rest_reason(choice)),) if unlisted else (),
        notes=notes(weighing, shape) + said,
        risks=may_lose,
        value=choice.value if choice else None,
        refusal="" if plan else refusal(rows, weighing, shape),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Choice:
    """The best row, and the best of each of the next best pairs behind it. value: of the best
    row, what the objective minimises."""

    best: Candidates
    prediction: Prediction
    interval_s: float
    odds: float | None  # to keep the deadline
    kept: float  # probability to end before the time limit
    value: float | None


def _weighed(
    request: Request,
    shape: ClusterShape,
    coefficients: Coefficients,
    queue_waits: Mapping[str, float],
) -> tuple[Weighing, _Choice | None]:
    """With as much set aside as still leaves a row that will do."""
    tried = []
    for aside in set_aside(request, shape.partitions):
        weighing = Weighing(request, shape, coefficients, queue_waits, aside)
        choice = _choose(weighing)
        if choice is not None and (
            choice.odds is None or choice.odds >= request.objective.sure
        ):
            return weighing, choice
        tried.append((weighing, choice))
    return next((one for one in tried if one[1] is not None), tried[-1])


def _choose(weighing: Weighing) -> _Choice | None:
    best = weighing.best(most=LISTED_PAIRS)
    by_deadline = weighing.objective.kind == "deadline"
    if not len(best) and by_deadline:
        best = weighing.likeliest(most=LISTED_PAIRS)
    if not len(best):
        return None
    forecast = weighing.by_law(best, best=0)
    deviations = weighing.deviations(best)
    odds = float(weighing.odds(best)[0]) if by_deadline else None
    value = float(weighing.values(forecast)[0])
    if odds is not None and odds < HOPELESS:
        return None
    return _Choice(
        best=best,
        prediction=forecast.prediction(0, deviations),
        interval_s=float(forecast.interval_s[0]),
        odds=odds,
        kept=float(weighing.kept(best, forecast)[0]),
        value=value if math.isfinite(value) else None,
    )


def _listed(weighing: Weighing, choice: _Choice | None, total: int) -> Candidates:
    if total <= LISTED_ROWS:
        return expand(weighing.lanes)[0]
    if choice is not None:
        return choice.best.joined(weighing.neighbours(choice.best.take(np.array([0]))))
    fastest = weighing.fastest()
    if len(fastest):
        return fastest
    return weighing.lanes.take(np.arange(len(weighing.lanes))[:LISTED_PAIRS]).first_rows()


def _rest_reason(choice: _Choice | None) -> str:
    if choice is None:
        return "will not do either"
    if len(choice.best) < LISTED_PAIRS:
        return "no better than the best row of the same partition and layout above"
    return f"no better than the best rows of the {LISTED_PAIRS} best pairs above"


def _rows(
    weighing: Weighing, choice: _Choice | None, candidates: Candidates, forecast: Forecast
) -> list[Row]:
    saturation = weighing.saturation(candidates)
    workers = weighing.predictor.workers(candidates, candidates.low)
    deviations = weighing.deviations(candidates)
    odds: list[float | None] = [None] * len(candidates)
    if weighing.objective.kind == "deadline":
        odds = [float(one) for one in weighing.odds(candidates)]
    front = _front(forecast, priced=weighing.priced)
    kept = weighing.kept(candidates, forecast)
    rows = []
    for at in range(len(candidates)):
        partition, servers, nodes = candidates.key(at)
        prediction, trainers = None, int(workers[at])
        if math.isfinite(forecast.total_s[at]):
            prediction = forecast.prediction(at, deviations)
        chosen = choice is not None and candidates.key(at) == choice.best.key(0)
        rejected = None
        if not chosen:
            rejected = _why_not(
                weighing, choice, candidates, forecast, at, prediction, odds[at]
            )
            if prediction is not None and kept[at] < SAFE:
                rejected += f"; ends before its time limit with {odds_in_words(kept[at])}"
            if trainers > saturation[at]:
                limit = count(max(int(saturation[at]), 1), "worker")
                rejected += f"; the servers saturate at {limit}"
        rows.append(
            Row(
                partition=weighing.fit[partition].name,
                nodes=nodes,
                layout=layout_of(servers),
                servers=servers,
                workers=trainers,
                prediction=prediction,
                rejected=rejected,
                chosen=chosen,
                pareto=at in front,
                deadline_odds=odds[at] if prediction is not None else None,
            )
        )
    return rows


def _why_not(
    weighing: Weighing,
    choice: _Choice | None,
    candidates: Candidates,
    forecast: Forecast,
    at: int,
    prediction: Prediction | None,
    odds: float | None,
) -> str:
    if prediction is None:
        return why_never(weighing, candidates, forecast, at)
    return why_not(
        prediction,
        choice.prediction if choice else None,
        weighing.objective,
        nodes=candidates.key(at)[2],
        best_nodes=choice.best.key(0)[2] if choice else 0,
        priced=weighing.priced,
        odds=odds,
    )


def _front(forecast: Forecast, *, priced: bool) -> frozenset[int]:
    """Candidates that no other one beats in both time and cost (node-hours without price);
    of equal ones the first."""
    prices = forecast.cost if priced else forecast.node_hours
    least, front = math.inf, []
    for at in np.lexsort((prices, forecast.total_s)).tolist():
        if math.isfinite(forecast.total_s[at]) and prices[at] < least:
            least = float(prices[at])
            front.append(at)
    return frozenset(front)


def _plan(
    weighing: Weighing,
    choice: _Choice,
    shape: ClusterShape,
    coefficients: Coefficients,
    reason: str,
    run_id: str,
    run_dir: str,
) -> Plan:
    request = weighing.request
    at, servers, nodes = choice.best.key(0)
    partition: Partition = weighing.fit[at]
    roles = roles_of(
        nodes=nodes,
        servers=servers,
        per_node=workers_per_node(weighing.job, partition),
        most=most_workers(weighing.job),
    )
    return Plan(
        run_id=run_id,
        run_dir=run_dir,
        workload=request.workload,
        script=request.script,
        script_args=request.script_args,
        cluster=shape.name,
        partition=partition.name,
        layout=layout_of(servers),
        nodes=nodes,
        workers=sum(role.name == "worker" for role in roles),
        servers=servers,
        gpus_per_node=partition.gpus_per_node,
        cores_per_node=partition.cores_per_node,
        roles=roles,
        steps=choice.prediction.steps,
        batch_per_worker=request.batch_per_worker,
        data=request.data,
        scratch_path=partition.scratch_path,
        checkpoint_dir=_checkpoint_dir(request, run_id, run_dir),
        checkpoint_interval_s=choice.interval_s,
        resumable=request.resumable,
        preemption_signal=shape.preemption_signal,
        grace_s=partition.grace_s,
        kill_wait_s=shape.kill_wait_s,
        max_requeues=shape.max_requeues,
        mpi_plugin=shape.mpi_plugin,
        prediction=choice.prediction,
        coefficients=coefficients.label,
        reason=reason,
        sbatch_options=request.sbatch_options,
        launch=request.launch,
        framework=request.framework,
        basis=weighing.finder.basis(partition),
        gres=partition.gres,
        whole_nodes=partition.whole_nodes,
    )


def _checkpoint_dir(request: Request, run_id: str, run_dir: str) -> str:
    """The run's own: two runs never share one, so that none resumes from another's state."""
    if request.checkpoint_dir:
        return f"{request.checkpoint_dir}/{run_id}"
    return f"{run_dir}/checkpoints"
