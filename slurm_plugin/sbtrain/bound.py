"""A decision that keeps to what sbatch's options ask of a node.

The planner knows of no such options: partitions that cannot give what they ask are kept from
it by name, and stand in the decision with the reason.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sbtrain.argv import given
from sbtrain.demands import DEMANDING, lacking
from sbtrain.planning import Outcome, Surroundings, decide
from sbtrain_perf.request import slurm_partition

if TYPE_CHECKING:
    from sbtrain.slurm.client import SlurmClient
    from sbtrain.submission import Asked
    from sbtrain_perf.decision import Decision, Row


def decide_bound(
    asked: Asked, around: Surroundings, client: SlurmClient | None = None
) -> Outcome:
    """As planning.decide, which says what is raised; no plan takes what it cannot get."""
    if not given(asked.settings, *DEMANDING):
        return decide(asked, around, client)
    from sbtrain.site import load_site

    shape = load_site(asked.options.site, around.environ)
    reasons = {
        one.name: reason
        for one in shape.partitions
        if (reason := lacking(one, asked.settings)) is not None
    }
    if not reasons:
        return decide(asked, around, client)
    whole = decide(asked, around)  # without the queue: what else the planner refuses, and why
    pools: dict[str, set[str]] = {}
    for one in shape.partitions:
        pools.setdefault(slurm_partition(one.name), set()).add(one.name)
    wanted = asked.request.partition.split(",") if asked.request.partition else list(pools)
    left = [name for name in wanted if not pools.get(name, set()) <= set(reasons)]
    while left:
        outcome = decide(_within(asked, left), around, client)
        chosen = outcome.decision.chosen
        if chosen is None or chosen.partition not in reasons:
            return _told(outcome, reasons, whole.decision)
        left.remove(slurm_partition(chosen.partition))  # its pool of any nodes
    nothing = dataclasses.replace(whole.decision, chosen=None, rest=(), notes=())
    return _told(Outcome(shape=shape, decision=nothing), reasons, whole.decision)


def _within(asked: Asked, names: list[str]) -> Asked:
    return dataclasses.replace(
        asked, request=dataclasses.replace(asked.request, partition=",".join(names))
    )


def _told(outcome: Outcome, reasons: dict[str, str], whole: Decision) -> Outcome:
    """The outcome with the true reason beside each partition that was kept from it.

    whole: the decision from which none was.
    """
    from sbtrain_perf.weighing import refused_row

    decision = outcome.decision
    before = {row.partition: row.rejected for row in whole.rows if not _is_weighed(row)}
    rows = []
    for row in decision.rows:
        if row.partition in reasons:
            rows.append(refused_row(row.partition, reasons[row.partition]))
        elif _is_weighed(row):
            rows.append(row)
        else:
            reason = before.get(row.partition, row.rejected)
            rows.append(dataclasses.replace(row, rejected=reason))
    decision = dataclasses.replace(decision, rows=tuple(dict.fromkeys(rows)))
    if decision.chosen is None and not any(_is_weighed(row) for row in decision.rows):
        decision = dataclasses.replace(decision, refusal=_refusal(decision, outcome.shape.name))
    return dataclasses.replace(outcome, decision=decision)


def _is_weighed(row: Row) -> bool:
    return bool(row.nodes or row.servers)


def _refusal(decision: Decision, cluster: str) -> str:
    names: dict[str, list[str]] = {}
    for row in decision.rows:
        names.setdefault(row.rejected or "", []).append(row.partition)
    said = [f"{', '.join(found[:3])}: {reason}" for reason, found in names.items()]
    return f"no partition of {cluster} fits: {'; '.join(said[:3])}"
