"""From what a call asks to a decision: what `sbtrain` and `sbtrainctl plan` share."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

from sbtrain.home import learnt_coefficients
from sbtrain.launches.launch_lines import launched_programs
from sbtrain.options.argv import given, last_value
from sbtrain.scripts.gpus import leaves_gpus_alone
from sbtrain.slurm.kept_answers import KeptAnswers
from sbtrain.submission.asked import (
    GPU_OPTIONS,
    Asked,
    asked_signal,
)
from sbtrain.submission.on_slurm import Planner, with_default_time, with_waits
from sbtrain.submission.qos_ranks import ranked_by_qos
from sbtrain.submission.queue import (
    Known,
    ask_known,
    closed_notes,
    fitted,
    queue_waits,
)
from sbtrain.submission.run_files import new_run_id, placed, runs_folder
from sbtrain_perf.errors import PlanError, RequestError
from sbtrain_perf.request import NodeRange, slurm_partition
from sbtrain_perf.wording import count, duration

if TYPE_CHECKING:
    from sbtrain.slurm.client import SlurmClient
    from sbtrain.submission.read_call import Surroundings
    from sbtrain_perf.decision import Decision
    from sbtrain_perf.request import ClusterShape, Plan, Request


_MOST_NAMED = 3  # partitions that are left out, in one call
NONE_CLOSED: Mapping[str, str] = MappingProxyType({})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """decision.chosen is None where nothing fits; warnings: what the user must know of how
    the decision came about; notes: what he may want to. asked: what it is the answer to."""

    asked: Asked
    shape: ClusterShape
    decision: Decision
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def decide(
    asked: Asked,
    around: Surroundings,
    client: SlurmClient | None = None,
    *,
    closed: Mapping[str, str] = NONE_CLOSED,
    to_run: bool = True,
) -> Planned:
    """Plan it.

    Args:
        client: is asked about partitions, nodes and the queue; None: not at all.
        closed: partitions that have refused the job, and why.
        to_run: now. Otherwise nothing is asked of the queue, and a site file may be another
            cluster's.

    Raises:
        SiteError: the site file is missing or wrong.
        CoefficientsError: what was learnt cannot be read.
        RequestError, PlanError: the request does not say enough, or not for this site.
    """
    from sbtrain_perf.coefficients import load_coefficients

    limit_s, now = asked.request.time_limit_s, datetime.now(UTC)
    ground = _ground(asked, around, client, closed=closed, to_run=to_run)
    asked, shape, known = ground.asked, ground.shape, ground.known
    run_id = new_run_id(asked.request.workload, now)
    planner = Planner(
        coefficients=load_coefficients(learnt_coefficients(around.environ)),
        run_id=run_id,
        run_dir=str(runs_folder(around.cwd, around.environ) / run_id),
    )
    invented = not asked.request.says_work and (
        asked.launch == "script" or not asked.script.uses_sbtrain
    )
    if invented:
        asked = dataclasses.replace(asked, request=_without_limit(asked.request))
    asked, decision, said = _predicted(planner, asked, ground)
    warnings = [*ground.warnings, *said]
    if ground.queued and asked.opened and _is_open(asked):
        waits = queue_waits(asked, decision.rows, shape, known, limit_s=limit_s)
        if waits.silence:
            warnings.append(f"the queue is not reckoned with: {waits.silence}")
        shape, decision, unknown = with_waits(planner, asked.request, shape, decision, waits)
        warnings += unknown
    if not invented:
        decision = with_default_time(asked, decision, shape, known=known)
    if decision.chosen is not None:
        plan = placed(decision.chosen, asked.script, now=now)
        plan = _as_known(asked, plan, invented=invented)
        warnings += ground.closed_to_it
        decision = dataclasses.replace(decision, chosen=plan)
    return Planned(
        asked=asked,
        shape=shape,
        decision=decision,
        warnings=tuple(warnings),
        notes=ground.notes,
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Ground:
    """What there is to plan on. queued: its queue may be reckoned with; blind: nothing is known
    of the cluster; closed_to_it: partitions that take no such job, in words."""

    asked: Asked
    shape: ClusterShape
    known: Known
    queued: bool
    blind: bool
    warnings: tuple[str, ...] = ()
    closed_to_it: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def _ground(
    asked: Asked,
    around: Surroundings,
    client: SlurmClient | None,
    *,
    closed: Mapping[str, str],
    to_run: bool,
) -> _Ground:
    from sbtrain.sites.layers import load_site, stale_note
    from sbtrain.sites.shape import without_gpus

    answers = _answers(asked, around, client)
    known = _known(asked, answers, to_run=to_run, refused=bool(closed))
    if answers is None and client is not None:
        known = Known(silence="the job goes to another cluster, which is not asked")
    runs = to_run and not asked.options.explain
    site = load_site(
        asked.options.site,
        around.environ,
        known.site(),
        of_call=known.site_for(asked),
        to_run=runs,
        asks_gpus=given(asked.settings, *GPU_OPTIONS),
    )
    shape, notes = ranked_by_qos(asked, site.shape, known), tuple[str, ...]()
    if any(one.gpu for one in shape.partitions) and _wants_no_gpus(asked):
        shape = without_gpus(shape)
        notes = ("planned without GPUs: it imports nothing that uses them (--gres asks)",)
    blind = site.invented and bool(known.silence)
    if blind and not runs:
        raise PlanError(
            f"nothing is known of the cluster: {known.silence}",
            hint="ask again when Slurm answers, or name a site file (--train-site)",
        )
    if blind:
        asked = dataclasses.replace(asked, opened=False)
    elif asked.launch == "ranks" and not (runs and (known.partitions or known.silence)):
        _check_partition(asked.request.partition, shape)
    queued, closed_to_it = to_run and answers is not None, list[str]()
    if queued and _is_open(asked):
        whole = shape
        shape, left_out = fitted(asked, whole, known, closed)
        most = len(left_out) if asked.options.explain else _MOST_NAMED
        closed_to_it = closed_notes(left_out, none_left=shape is whole, most=most, apart=closed)
        asked = _in_default_partition(asked, shape, known)
    return _Ground(
        asked=asked,
        shape=shape,
        known=known,
        queued=queued,
        blind=blind,
        warnings=(stale_note(site.stale),) if site.stale else (),
        closed_to_it=tuple(closed_to_it),
        notes=notes,
    )


def _predicted(
    planner: Planner, asked: Asked, ground: _Ground
) -> tuple[Asked, Decision, list[str]]:
    """The decision as if nobody waited, what it is the answer to, and warnings."""
    shape, warnings = ground.shape, list[str]()
    decision = planner.plan(asked.request, shape)
    if ground.blind:
        why = ground.known.silence
        warnings.append(f"{why}; nothing is predicted, and sbatch decides")
        asked, decision = _unplanned(planner, asked, shape, why=why)
    weighed = any(row.nodes for row in decision.rows)
    if decision.chosen is None and weighed and asked.request.time_limit_s is not None:
        # A prediction may be far off, above all for what never ran: the user's word counts.
        unbound = dataclasses.replace(asked, request=_without_limit(asked.request))
        without = planner.plan(unbound.request, shape)
        if without.chosen is not None:
            warnings.append(f"{decision.refusal}; planned as if the limit were no limit")
            asked, decision = unbound, without
    by_sbatch = asked.launch == "script" or bool(_strange(asked.request.partition, shape))
    if decision.chosen is None and by_sbatch:
        warnings.append(f"{decision.refusal}; nothing is predicted, and sbatch decides")
        why = decision.refusal
        asked, decision = _unplanned(planner, asked, shape, why=why, refused=decision)
    return asked, decision, warnings


def _as_known(asked: Asked, plan: Plan, *, invented: bool) -> Plan:
    """With what is known of its steps, and whose choice it is, in its reason; and with the
    user's own signal. invented: nothing says how many steps it takes."""
    if invented and asked.opened:
        assumed = f"{count(plan.steps, 'step')} assumed (--train-steps tells)"
        why = f"{plan.reason}; {assumed}"
        plan = dataclasses.replace(plan, steps_known=False, reason=why)
    elif invented:
        why = "nothing is predicted: nothing says how many steps it takes (--train-steps)"
        plan = dataclasses.replace(plan, steps_known=False, reason=why)
    if plan.steps_known and not asked.opened:
        plan = dataclasses.replace(plan, reason=_not_chosen(plan))
    own_signal = _signal_of(asked)
    return dataclasses.replace(plan, preemption_signal=own_signal) if own_signal else plan


def _known(asked: Asked, answers: KeptAnswers | None, *, to_run: bool, refused: bool) -> Known:
    if answers is None:
        return Known()
    now = to_run and asked.opened
    named = (asked.request.partition or "").split(",")
    return ask_known(
        answers,
        anew=now,
        named=[name for name in named if name],
        refused=refused,
        queue=now and _is_open(asked),
    )


def _not_chosen(plan: Plan) -> str:
    """What is said of a run whose partition and nodes are sbatch's."""
    from sbtrain_perf.decision import WIDE, dominant_in_words, interval_in_words

    wide = interval_in_words(plan.prediction, from_ratio=WIDE)
    where = f"{count(plan.nodes, 'node')} of {slurm_partition(plan.partition)}"
    return (
        f"predicted to take {duration(plan.prediction.total_s)}{wide} on {where}; "
        f"{dominant_in_words(plan.prediction)}; partition and nodes are as sbatch has them"
    )


def _answers(
    asked: Asked, around: Surroundings, client: SlurmClient | None
) -> KeptAnswers | None:
    """None also where the job goes to another cluster, of which nothing is asked."""
    elsewhere = last_value(asked.settings, "clusters") or around.environ.get("SLURM_CLUSTERS")
    return None if client is None or elsewhere else KeptAnswers(client, around.environ)


def _signal_of(asked: Asked) -> str | None:
    try:
        return asked_signal(asked.settings)
    except RequestError:
        if asked.launch == "script":  # sbatch will refuse it
            return None
        raise


def _in_default_partition(asked: Asked, shape: ClusterShape, known: Known) -> Asked:
    """Where the plan does not choose one, Slurm takes its default."""
    names = {slurm_partition(one.name) for one in shape.partitions}
    for one in known.partitions:
        if one.default and one.name in names and not asked.opened:
            request = dataclasses.replace(asked.request, partition=one.name)
            return dataclasses.replace(asked, request=request)
    return asked


def _unplanned(
    planner: Planner,
    asked: Asked,
    shape: ClusterShape,
    *,
    why: str,
    refused: Decision | None = None,
) -> tuple[Asked, Decision]:
    """What needs no plan to run: what it asked for stays as it is, and how it is run is that of
    the smallest job."""
    small = dataclasses.replace(
        asked.request,
        partition=None,
        sbatch_options=(),
        nodes=NodeRange(low=1, high=1),
        layout="allreduce",
        servers=None,
        time_limit_s=None,
    )
    decision = planner.plan(small, shape)
    if decision.chosen is None:
        return asked, refused or decision
    plan = dataclasses.replace(
        decision.chosen,
        nodes=asked.request.nodes.low,
        sbatch_options=asked.request.sbatch_options,
        steps_known=False,
        reason=f"nothing is predicted: {why}",
    )
    decision = dataclasses.replace(decision, chosen=plan)
    return dataclasses.replace(asked, opened=False), decision


def _is_open(asked: Asked) -> bool:
    """Whether anything is left to choose that a queue bears on, or to Slurm's default."""
    request = asked.request
    if not asked.opened:
        return request.partition is None
    several = request.partition is None or "," in request.partition
    return several or request.nodes.low != request.nodes.high


def _wants_no_gpus(asked: Asked) -> bool:
    """Nobody asked for any, and what is started can use none."""
    if given(asked.settings, *GPU_OPTIONS):
        return False
    if asked.launch == "ranks":
        return leaves_gpus_alone(asked.script)
    each = [
        list(launched_programs([line], folders=(asked.script.folder,)))
        for line in asked.launches
    ]
    return bool(each) and all(one and all(map(leaves_gpus_alone, one)) for one in each)


def _without_limit(request: Request) -> Request:
    return dataclasses.replace(request, time_limit_s=None)


def no_plan(decision: Decision) -> PlanError:
    return PlanError(decision.refusal, hint="--train-explain shows what was weighed and why")


def _check_partition(wanted: str | None, shape: ClusterShape) -> None:
    """Where nobody else can tell."""
    unknown = _strange(wanted, shape)
    if unknown:
        known = list(dict.fromkeys(slurm_partition(one.name) for one in shape.partitions))
        shown = ", ".join(known[:10]) + (" ..." if len(known) > 10 else "")
        raise RequestError(
            f"the site {shape.name} has no partition {unknown[0]!r} ({shape.source})",
            hint=f"it has {shown}; another site file is named by --train-site",
        )


def _strange(wanted: str | None, shape: ClusterShape) -> list[str]:
    known = {slurm_partition(one.name) for one in shape.partitions}
    return [name for name in (wanted or "").split(",") if name and name not in known]
