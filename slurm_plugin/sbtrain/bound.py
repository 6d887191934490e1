"""A decision that keeps to what sbatch's options ask of a node.

The planner itself reads --mem, --gres and --gpus-per-node. Partitions that cannot give what
others ask are kept from it by name, and stand in the decision with the reason.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from sbtrain.argv import given
from sbtrain.demands import DEMANDING, fewest_nodes, lacking
from sbtrain.planning import Outcome, Surroundings, decide
from sbtrain_perf.request import slurm_partition

if TYPE_CHECKING:
    from sbtrain.slurm.client import SlurmClient
    from sbtrain.submission import Asked
    from sbtrain_perf.decision import Decision, Row
    from sbtrain_perf.request import NodeRange


def decide_bound(
    asked: Asked, around: Surroundings, client: SlurmClient | None = None
) -> Outcome:
    """As planning.decide, which says what is raised; no plan takes what it cannot get."""
    if not given(asked.settings, *DEMANDING):
        return decide(asked, around, client)
    from sbtrain.site import load_site

    shape = load_site(asked.options.site, around.environ)
    nodes = asked.request.nodes
    reasons = {
        one.name: reason
        for one in shape.partitions
        if (reason := lacking(one, asked.request, asked.settings)) is not None
    }
    pools: dict[str, set[str]] = {}
    for one in shape.partitions:
        pools.setdefault(slurm_partition(one.name), set()).add(one.name)
    wanted = asked.request.partition.split(",") if asked.request.partition else list(pools)
    left = [name for name in wanted if not pools.get(name, {""}) <= set(reasons)]
    whole = decide(asked, around) if reasons else None  # what else the planner refuses, and why
    while left:
        outcome = decide(_within(asked, left, nodes) if reasons else asked, around, client)
        chosen = outcome.decision.chosen
        if chosen is not None and chosen.partition in reasons:
            left.remove(slurm_partition(chosen.partition))  # its pool of any nodes
        elif chosen is not None and chosen.nodes < fewest_nodes(chosen, asked.settings):
            low = fewest_nodes(chosen, asked.settings)
            nodes = dataclasses.replace(nodes, low=low)
            asked = _within(asked, wanted, nodes)
        else:
            return _told(outcome, reasons, whole.decision if whole else outcome.decision)
    whole = whole or decide(asked, around)
    nothing = dataclasses.replace(whole.decision, chosen=None, rest=(), notes=())
    return _told(Outcome(shape=shape, decision=nothing), reasons, whole.decision)


def _within(asked: Asked, names: list[str], nodes: NodeRange) -> Asked:
    request = dataclasses.replace(asked.request, partition=",".join(names), nodes=nodes)
    return dataclasses.replace(asked, request=request)


def _told(outcome: Outcome, reasons: dict[str, str], whole: Decision) -> Outcome:
    """The outcome with the true reason beside each partition that was kept from it.

    whole: the decision from which none was.
    """
    from sbtrain_perf.room import refused_row

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
