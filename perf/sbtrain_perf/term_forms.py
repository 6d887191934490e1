"""The closed forms of sbtrain_perf.models as sums of terms, for one measured sample.

`seconds = (features . terms^power)^(1/power) + chain`. The terms are what refit learns: of
staging (overhead, seconds a byte), start-up (fixed, seconds a node), checkpoints (fixed,
seconds a byte), all-reduce steps (compute, transfer, hop), and parameter servers' updates
(compute and busy time of one server); of the last two power is the knee's sharpness.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sbtrain_perf.coefficients import (
    Base,
    Coefficients,
    LearntCheckpoint,
    LearntStage,
    LearntStart,
    LearntStep,
    OwnRuns,
    nearest_start,
    step_key,
)
from sbtrain_perf.measured import Sample, described_count
from sbtrain_perf.models.allreduce import hops, link_loads, transfers
from sbtrain_perf.models.parameter_server import linked_byte_s, server_s
from sbtrain_perf.own_runs import ratio_of
from sbtrain_perf.request import Plan
from sbtrain_perf.shards import server_shares, told_shares

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TermForm:
    """features and prior: (terms,). prior is what holds before anything is learnt."""

    features: Floats
    prior: Floats
    power: float = 1.0
    chain_s: float = 0.0

    def seconds(self, terms: Floats) -> float:
        total = self.features @ terms**self.power
        return float(total ** (1.0 / self.power)) + self.chain_s


def form_of(sample: Sample, base: Base) -> TermForm:
    plan = sample.timings.plan
    basis = plan.basis
    if sample.term == "stage":
        byte_s = 1.0 / basis.stage_bytes_s if basis.stage_bytes_s else 0.0
        return _sum(
            (1.0, sample.size_bytes),
            (base.stage.overhead_s.value, byte_s or sample.seconds / sample.size_bytes),
            chain_s=_chain_s(sample.size_bytes, plan, base),
        )
    if sample.term == "start":
        prior = (base.start.fixed_s.value, base.start.node_s.value)
        return _sum((1.0, float(plan.nodes)), prior)
    if sample.term == "checkpoint":
        prior = (base.checkpoint.fixed_s.value, basis.checkpoint_byte_s)
        return _sum((1.0, sample.size_bytes), prior)
    compute_s = basis.compute_s or sample.seconds
    parameters = float(described_count(sample.timings, "parameters") or basis.parameters)
    tensors = float(described_count(sample.timings, "tensors") or basis.tensors)
    if plan.layout == "ps":
        busy_s = _busy_s(parameters, tensors, base, link_bytes_s=basis.link_bytes_s)
        share = server_shares(
            told_shares(sample.timings),
            parameters=parameters,
            tensors=tensors,
            base=base,
            most=plan.servers,
        )[-1]
        return _updates_form(plan, base, compute_s, busy_s, share=float(share))
    share = parameters / basis.parameters if basis.parameters else 1.0
    power = base.allreduce.sharpness.value
    loads = link_loads(float(plan.gpus_per_node))
    moved = float(transfers(float(plan.nodes), loads=loads))
    return TermForm(
        features=np.array((1.0, moved, hops(float(plan.nodes)))) ** power,
        prior=np.array((compute_s, basis.transfer_s * share, basis.hop_s)),
        power=power,
    )


Entry = LearntStep | LearntStart | LearntStage | LearntCheckpoint


def learnt_entry(sample: Sample, coefficients: Coefficients) -> Entry | None:
    """What was learnt for exactly this sample's key; None where nothing was."""
    learnt, plan = coefficients.learnt, sample.timings.plan
    entries: Iterable[Entry]
    if sample.term == "stage":
        place = (plan.cluster, plan.partition)
        entries = (s for s in learnt.stages if (s.cluster, s.partition) == place)
    elif sample.term == "start":
        start = nearest_start(
            learnt, cluster=plan.cluster, workload=plan.workload, layout=plan.layout
        )
        entries = (start,) if start and start.layout in (None, plan.layout) else ()
    elif sample.term == "checkpoint":
        entries = (s for s in learnt.checkpoints if s.cluster == plan.cluster)
    else:
        key = step_key(plan)
        entries = (s for s in learnt.steps if step_key(s) == key)
    return next(iter(entries), None)


def learnt_terms(sample: Sample, coefficients: Coefficients) -> Floats | None:
    """The terms that were learnt for exactly this sample's key; None where none were."""
    entry = learnt_entry(sample, coefficients)
    match entry:
        case None:
            return None
        case LearntStage():
            return np.array((entry.overhead_s, 1.0 / entry.rate_bytes_s))
        case LearntStart():
            return np.array((entry.fixed_s, entry.node_s))
        case LearntCheckpoint():
            return np.array((entry.fixed_s, entry.byte_s))
        case LearntStep(layout="ps"):
            return np.array((entry.compute_s, entry.server_s))
        case LearntStep():
            return np.array((entry.compute_s, entry.transfer_s, entry.hop_s))


def predicted_s(sample: Sample, coefficients: Coefficients) -> float:
    """What coefficients predict of a measured term: learnt of its key, else the prior."""
    form = form_of(sample, coefficients.base)
    terms = learnt_terms(sample, coefficients)
    if terms is None:
        return form.seconds(form.prior)
    entry = learnt_entry(sample, coefficients)
    own = entry.own if isinstance(entry, LearntStep) else ()
    return form.seconds(terms) * own_ratio(sample, own)


def own_ratio(sample: Sample, own: Sequence[OwnRuns]) -> float:
    """Of a sample's configuration to the closed form, by its own runs."""
    plan = sample.timings.plan
    return ratio_of(own, nodes=plan.nodes, servers=plan.servers)


def relative_error(sample: Sample, coefficients: Coefficients) -> float:
    """|predicted - measured| / measured."""
    return abs(predicted_s(sample, coefficients) - sample.seconds) / sample.seconds


def _updates_form(
    plan: Plan, base: Base, compute_s: float, busy_s: float, *, share: float
) -> TermForm:
    power = base.server.sharpness.value
    return TermForm(
        features=np.array((1.0 / plan.workers, share)) ** power,
        prior=np.array((compute_s, busy_s)),
        power=power,
    )


def _busy_s(parameters: float, tensors: float, base: Base, *, link_bytes_s: float) -> float:
    server = base.server
    byte_s = server.parameter_byte_s.value
    if link_bytes_s > 0.0:
        byte_s = float(linked_byte_s(byte_s, link_bytes_s=link_bytes_s))
    return float(
        server_s(
            parameters,
            tensors,
            tensor_s=server.tensor_s.value,
            parameter_byte_s=byte_s,
        )
    )


def _chain_s(size_bytes: float, plan: Plan, base: Base) -> float:
    """The last chunk's way through the nodes; not fitted."""
    if plan.basis.link_bytes_s <= 0.0:
        return 0.0
    chunk = min(base.stage.chunk_bytes.value, size_bytes)
    return (plan.nodes - 1) * chunk / plan.basis.link_bytes_s


def _sum(
    features: tuple[float, ...], prior: tuple[float, ...], *, chain_s: float = 0.0
) -> TermForm:
    return TermForm(features=np.array(features), prior=np.array(prior), chain_s=chain_s)
