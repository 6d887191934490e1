"""The coefficients of the models: the shipped ones, each with unit and source, and what
refits have learnt of clusters and workloads on top of them."""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from dataclasses import dataclass, field
from pathlib import Path

from sbtrain_perf.codec import decode, encode
from sbtrain_perf.coefficient_checks import check_lifetimes, check_signs
from sbtrain_perf.errors import CoefficientsError
from sbtrain_perf.request import Layout, Plan

COEFFICIENTS_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """A number that a model needs, with where it comes from."""

    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeTerms:
    """Of models.step_time, at batch 128 on one K80 die; cpu_core_speed is one core's speed
    in such dies."""

    fixed_s: Coefficient
    tensor_s: Coefficient
    activation_s: Coefficient
    parameter_s: Coefficient
    cpu_core_speed: Coefficient


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerTerms:
    """Of models.parameter_server."""

    tensor_s: Coefficient
    parameter_byte_s: Coefficient
    sharing: Coefficient
    sharpness: Coefficient
    most_servers: Coefficient


@dataclass(frozen=True, slots=True, kw_only=True)
class AllreduceTerms:
    """Of models.allreduce; efficiency is the share of the link that gradients see."""

    efficiency: Coefficient
    hop_s: Coefficient
    sharpness: Coefficient


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTerms:
    """Of models.staging."""

    overhead_s: Coefficient
    chunk_bytes: Coefficient


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTerms:
    """Of models.startup."""

    fixed_s: Coefficient
    node_s: Coefficient


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTerms:
    """Of models.checkpoint; byte_s is added to the shared filesystem's own time."""

    fixed_s: Coefficient
    byte_s: Coefficient
    parameter_bytes: Coefficient


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureTerms:
    """node_mtbf_s: mean time between failures of one node. unknown_preemption_s: mean time
    to preemption in a preemptible partition whose site does not state one."""

    node_mtbf_s: Coefficient
    unknown_preemption_s: Coefficient


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownModel:
    """The network that is assumed where nothing is known of it, and what memory it takes."""

    parameters: Coefficient
    tensors: Coefficient
    memory_parameter_bytes: Coefficient


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadTerms:
    """How far off each part is before anything is learnt of it: standard deviations of
    logarithms. unknown_model adds to all that follows the network's size where that is
    assumed; carried to what was learnt on another partition, in another layout or, per
    factor e, at another batch size; run is how runs of one plan differ.
    """

    compute: Coefficient
    unknown_model: Coefficient
    transfer: Coefficient
    hop: Coefficient
    server: Coefficient
    stage: Coefficient
    start: Coefficient
    checkpoint: Coefficient
    queue: Coefficient
    hazard: Coefficient
    carried: Coefficient
    doubling: Coefficient
    run: Coefficient
    noise_samples: Coefficient


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """What holds for every workload until something is learnt of it."""

    compute: ComputeTerms
    server: ServerTerms
    allreduce: AllreduceTerms
    stage: StageTerms
    start: StartTerms
    checkpoint: CheckpointTerms
    failure: FailureTerms
    unknown_model: UnknownModel
    spread: SpreadTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntSpread:
    """How far off a learnt sum of terms may be.

    covariance: of the logarithms of its terms, row by row; empty where a file of an older
    sbtrain does not say. noise_sd: of one run's logarithm about the sum, widened for few
    samples.
    """

    covariance: tuple[float, ...] = ()
    noise_sd: float = 0.0
    samples: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRuns:
    """Of one configuration: how its steps' time stands to that of the closed form."""

    nodes: int
    servers: int
    ratio: float
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntStep:
    """A workload's step on one partition: the parameters of the closed forms, and what the
    configurations that were run have of their own."""

    cluster: str
    workload: str
    partition: str
    layout: Layout
    batch_per_worker: int
    compute_s: float
    transfer_s: float
    hop_s: float
    server_s: float
    nodes: tuple[int, ...]  # node counts that were measured
    runs: tuple[str, ...]
    spread: LearntSpread = LearntSpread()
    own: tuple[OwnRuns, ...] = ()
    workers_per_node: int = 1

    @property
    def batch_per_node(self) -> int:
        return self.workers_per_node * self.batch_per_worker


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntStart:
    """layout: servers take longer to come up. None: of both, as files of before say."""

    cluster: str
    workload: str
    layout: Layout | None = None
    fixed_s: float
    node_s: float
    runs: tuple[str, ...]
    spread: LearntSpread = LearntSpread()


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntStage:
    cluster: str
    partition: str
    overhead_s: float
    rate_bytes_s: float
    runs: tuple[str, ...]
    spread: LearntSpread = LearntSpread()


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntCheckpoint:
    """byte_s holds all that grows with size, the filesystem's time included."""

    cluster: str
    fixed_s: float
    byte_s: float
    runs: tuple[str, ...]
    spread: LearntSpread = LearntSpread()


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntLifetime:
    """Ages at which a partition preempts: models.lifetime's bins. mean_s: of the law.
    ended: how many of the attempts were preempted; the others ended for other reasons."""

    cluster: str
    partition: str
    edges_s: tuple[float, ...]
    hazards_1_s: tuple[float, ...]
    mean_s: float
    attempts: int
    ended: int
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LearntModel:
    """What a workload's runs said of their network. None, 0 or nothing: they did not say.
    fullest_shards: of 2, 3, ... parameter servers the share that the fullest holds."""

    workload: str
    parameters: int | None = None
    tensors: int | None = None
    checkpoint_bytes: int = 0
    fullest_shards: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    steps: tuple[LearntStep, ...] = ()
    starts: tuple[LearntStart, ...] = ()
    stages: tuple[LearntStage, ...] = ()
    checkpoints: tuple[LearntCheckpoint, ...] = ()
    models: tuple[LearntModel, ...] = ()
    lifetimes: tuple[LearntLifetime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Of the last runs, so many took a term outside the interval they were planned with.
    ratio: measured to predicted, median. odds: of as many by chance."""

    cluster: str
    workload: str
    term: str
    runs: int
    outside: int
    ratio: float
    odds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficients:
    """generation 0 is what sbtrain ships; each refit makes the next one. parent: the
    generation that this one was learnt on top of."""

    base: Base
    generation: int = 0
    learnt: Learnt = field(default_factory=Learnt)
    sources: tuple[str, ...] = ()  # run ids that were learnt from
    parent: int = 0
    drift: tuple[Drift, ...] = ()

    @property
    def label(self) -> str:
        return f"generation {self.generation}" if self.generation else "shipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    version: int
    generation: int = 0
    base: Base | None = None  # None: the shipped one, also after an upgrade of sbtrain
    learnt: Learnt = field(default_factory=Learnt)
    sources: tuple[str, ...] = ()
    parent: int = 0
    drift: tuple[Drift, ...] = ()


def load_coefficients(path: str | Path | None = None) -> Coefficients:
    """The shipped coefficients, or those of a file that a refit wrote.

    Raises:
        CoefficientsError: the file is missing or is not a coefficients file.
    """
    if path is None:
        text = Path(__file__).with_name("coefficients.json").read_text(encoding="utf-8")
        return coefficients_from_json(text, source="the shipped coefficients")
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError):
            reason = error.strerror
            hint = "without a coefficients file sbtrain uses the shipped ones"
        else:
            reason, hint = "not UTF-8 text", start_again_from_shipped(path)
        raise CoefficientsError(
            f"cannot read the coefficients {path}: {reason}", hint=hint
        ) from error
    return coefficients_from_json(text, source=str(path))


def start_again_from_shipped(path: str | Path) -> str:
    """The command that moves a coefficients file away, and what it is good for."""
    away = shlex.join(["mv", str(path), f"{path}.damaged"])
    return f"to start again from the shipped coefficients: {away}"


def coefficients_from_json(text: str, *, source: str) -> Coefficients:
    """Raises CoefficientsError; its message names source and the dotted place in it."""
    hint = start_again_from_shipped(source)
    try:
        data = json.loads(text)
        if isinstance(data, dict) and data.get("version") != COEFFICIENTS_VERSION:
            raise CoefficientsError(
                f"{source} has version {data.get('version')!r}, this sbtrain reads version "
                f"{COEFFICIENTS_VERSION}",
                hint=hint,
            )
        file = decode(_File, data)
        coefficients = Coefficients(
            base=file.base or load_coefficients().base,
            generation=file.generation,
            learnt=file.learnt,
            sources=file.sources,
            parent=file.parent,
            drift=file.drift,
        )
        for part in ("base", "learnt"):
            check_signs(data.get(part), path=part)
        check_lifetimes(coefficients.learnt.lifetimes)
    except (ValueError, RecursionError) as error:
        raise CoefficientsError(
            f"{source} is not a coefficients file: {error}", hint=hint
        ) from error
    return coefficients


def coefficients_to_json(coefficients: Coefficients) -> str:
    """The text of a coefficients file. The base is left out where it is the shipped one."""
    shipped = coefficients.generation > 0 and coefficients.base == load_coefficients().base
    file = _File(
        version=COEFFICIENTS_VERSION,
        generation=coefficients.generation,
        base=None if shipped else coefficients.base,
        learnt=coefficients.learnt,
        sources=coefficients.sources,
        parent=coefficients.parent,
        drift=coefficients.drift,
    )
    return json.dumps(encode(file), indent=2) + "\n"


def step_key(of: LearntStep | Plan) -> tuple[str | int, ...]:
    """What a step is learnt for. Workers that share a node are unlike one that has it alone,
    of whatever batch."""
    batch: str | int = of.batch_per_worker
    if of.workers_per_node > 1:
        batch = f"{of.workers_per_node} x {batch}"
    return of.cluster, of.workload, of.partition, of.layout, batch


def nearest_step(
    learnt: Learnt,
    *,
    cluster: str,
    workload: str,
    partition: str,
    layout: Layout,
    batch: int,
    each: int,
) -> LearntStep | None:
    """The step that stands in for the shipped one: of the workload on the cluster, of the
    same layout, then partition, then samples a node, then workers a node if there is one.
    batch: of one worker. each: workers of a node."""
    alike = (s for s in learnt.steps if (s.workload, s.cluster) == (workload, cluster))
    return min(
        alike,
        key=lambda s: (
            s.layout != layout,
            s.partition != partition,
            abs(math.log(s.batch_per_node / (batch * each))),
            s.workers_per_node != each,
            s.partition,
        ),
        default=None,
    )


def nearest_start(
    learnt: Learnt, *, cluster: str, workload: str, layout: Layout
) -> LearntStart | None:
    """Of this layout, else of both, else of the other one."""
    known = [s for s in learnt.starts if (s.cluster, s.workload) == (cluster, workload)]
    return min(known, key=lambda s: (s.layout != layout, s.layout is not None), default=None)


def learnt_model(coefficients: Coefficients, workload: str) -> LearntModel | None:
    return next((m for m in coefficients.learnt.models if m.workload == workload), None)


def learnt_lifetime(
    coefficients: Coefficients, cluster: str, partition: str
) -> LearntLifetime | None:
    place = (cluster, partition)
    found = (s for s in coefficients.learnt.lifetimes if (s.cluster, s.partition) == place)
    return next(found, None)


def with_learnt(
    coefficients: Coefficients,
    learnt: Learnt,
    runs: tuple[str, ...],
    drift: tuple[Drift, ...] = (),
) -> Coefficients:
    """The next generation: the same base, other things learnt."""
    return dataclasses.replace(
        coefficients,
        generation=coefficients.generation + 1,
        learnt=learnt,
        sources=runs,
        parent=coefficients.generation,
        drift=drift,
    )
