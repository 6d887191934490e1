"""The CM-DARE files as values: networks, one-worker step times, checkpoints, clusters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from sbtrain_perf.fitting.conformal import NORMAL_90, Estimate
from sbtrain_perf.fitting.parameter_server import Belief, ServedNetwork
from sbtrain_perf.fitting.step_time import (
    Network,
    StepObservation,
    StepTimeFit,
    fit_step_time,
    network_of,
)
from sbtrain_perf.models.residual_network import recognise
from sbtrain_perf.score.tables import ScoreError, ScoreRow, read_table

MOST_TENSORS = 10**7
OTHER_DAY_SD = 0.05  # of log step time between days and hosts: K80 1 %, P100 up to 17 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Cnn:
    """A line of models.csv.

    order: its place in the campaign. published_gflops: nan where the file does not say.
    """

    name: str
    order: float
    network: Network
    published_gflops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cnns(Mapping[str, Cnn]):
    """The CNNs in the campaign's order. A line is read when its network is asked for:
    what is wrong in a line that nothing needs does not matter."""

    rows: Mapping[str, ScoreRow]
    order: Sequence[str]
    _read: dict[str, Cnn] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __getitem__(self, name: str) -> Cnn:
        if name not in self._read:
            self._read[name] = self._cnn(name, self.rows[name])
        return self._read[name]

    def _cnn(self, name: str, row: ScoreRow) -> Cnn:
        gflops = row.optional_positive("model_flops_gf")
        return Cnn(
            name=name,
            order=float(self.order.index(name)),
            network=network_of(
                row.whole("n_params"), row.whole("n_tensors", most=MOST_TENSORS)
            ),
            published_gflops=math.nan if gflops is None else gflops,
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)


def read_cnns(fit_dir: Path, score_dir: Path) -> Cnns:
    """All CNNs that either folder knows, with the fit folder's features where both do.

    The campaign's order is that of the file which lists more of them, the fit folder's if
    both list as many; what only the other lists comes after its neighbour there.
    """
    fitted, scored = (
        {row.name("model"): row for row in read_table(folder, "cmdare/models.csv")}
        for folder in (fit_dir, score_dir)
    )
    longer, shorter = (fitted, scored) if len(fitted) >= len(scored) else (scored, fitted)
    return Cnns(rows=scored | fitted, order=merged_order(list(longer), list(shorter)))


def merged_order(longer: Sequence[str], shorter: Sequence[str]) -> list[str]:
    """The longer list, with what only the shorter one has: each behind the one before it
    there; what has none before it, ahead of the next that both have, else at the end."""
    merged = list(longer)
    for at, name in enumerate(shorter):
        if name in merged:
            continue
        behind = next((other for other in shorter[at + 1 :] if other in merged), None)
        if at > 0:
            merged.insert(merged.index(shorter[at - 1]) + 1, name)
        elif behind is not None:
            merged.insert(merged.index(behind), name)
        else:
            merged.append(name)
    return merged


def cnn_of(cnns: Mapping[str, Cnn], name: str) -> Cnn:
    """Raises ScoreError where models.csv has no line for the model, or a wrong one."""
    if name not in cnns:
        raise ScoreError(
            f"cmdare/models.csv has no model {name!r}",
            hint="give it a line there, in --fit or --score (or --data): n_params, n_tensors",
        )
    return cnns[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStep:
    """Mean step time of one worker; run names the measurement (0lat, base)."""

    gpu: str
    model: str
    run: str
    step_s: float


def read_worker_steps(folder: Path) -> list[WorkerStep]:
    """The mean of each GPU and model in speed_single_worker.csv, or that of its samples
    where only they are there."""
    return _means(_single_worker(folder))


def read_base_steps(folder: Path) -> list[WorkerStep]:
    """speed_base_k80_p100_v100.csv: another day's runs of four models."""
    return _means(_base(folder))


def read_scored_steps(folder: Path) -> list[WorkerStep]:
    """Every row of speed_single_worker.csv; for a GPU and model that it lacks the mean of
    its samples, else every row of speed_base_k80_p100_v100.csv."""
    found = _rows(folder, "speed_single_worker", "step_time_mean_s", run="0lat")
    for further in (_means(_samples(folder)), _base(folder)):
        known = {(row.gpu, row.model) for row in found}
        found += [row for row in further if (row.gpu, row.model) not in known]
    return found


def _single_worker(folder: Path) -> list[WorkerStep]:
    means = _rows(folder, "speed_single_worker", "step_time_mean_s", run="0lat")
    return means or _samples(folder)


def _samples(folder: Path) -> list[WorkerStep]:
    return _rows(folder, "speed_single_worker_samples", "step_time_s", run="0lat")


def _base(folder: Path) -> list[WorkerStep]:
    return _rows(folder, "speed_base_k80_p100_v100", "step_time_s", run="base")


def _rows(folder: Path, name: str, column: str, *, run: str) -> list[WorkerStep]:
    return [
        WorkerStep(
            gpu=row.name("gpu"), model=row.name("model"), run=run, step_s=row.positive(column)
        )
        for row in read_table(folder, f"cmdare/{name}.csv")
    ]


def _means(rows: Sequence[WorkerStep]) -> list[WorkerStep]:
    samples: dict[WorkerStep, list[float]] = {}
    for row in rows:
        samples.setdefault(replace(row, step_s=0.0), []).append(row.step_s)
    return [replace(key, step_s=sum(times) / len(times)) for key, times in samples.items()]


def served(cnns: Mapping[str, Cnn], name: str) -> ServedNetwork:
    """What servers see of a network; its variables where the family is known."""
    network = cnn_of(cnns, name).network
    known = recognise(network.parameters, network.tensors)
    return ServedNetwork(
        name=name,
        parameters=network.parameters,
        tensors=network.tensors,
        variables=known.variables if known else (),
    )


def log_steps(
    pairs: Sequence[tuple[str, str]],
    cnns: Mapping[str, Cnn],
    fit_dir: Path,
    score_dir: Path,
) -> dict[tuple[str, str], Belief]:
    """Log step time of one worker of each (network, GPU), from both folders' measurements.

    A pair that nobody measured is placed by the step-time model, a GPU that nobody measured
    by its published figures.
    """
    rows: list[WorkerStep] = []
    for folder in (fit_dir, score_dir):
        rows += [
            row
            for row in [*read_worker_steps(folder), *read_base_steps(folder)]
            if row not in rows
        ]
    known: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        known.setdefault((row.model, row.gpu), []).append(math.log(row.step_s))
    result = {}
    fit = StepTimeFit(forms={}, factors={})
    if any(pair not in known for pair in pairs):
        fit = fit_step_time([step_observation(row, cnns) for row in rows])
    for pair in pairs:
        if pair in known:
            logs = known[pair]
            mean = sum(logs) / len(logs)
            sd = OTHER_DAY_SD / math.sqrt(len(logs))
        else:
            estimate = predicted_step(fit, cnn_of(cnns, pair[0]), pair[1], order=math.nan)
            mean = math.log(estimate.value)
            sd = math.log(estimate.high / estimate.low) / (2.0 * NORMAL_90)
        result[pair] = Belief(mean=mean, sd=sd)
    return result


def predicted_step(fit: StepTimeFit, cnn: Cnn, gpu: str, *, order: float) -> Estimate:
    """Raises ScoreError where the fit knows nothing of the GPU, nor how to place it."""
    try:
        return fit.predict(cnn.network, gpu, order=order)
    except LookupError as error:
        raise ScoreError(
            f"no step time of {cnn.name} on {gpu}: {error.args[0]}",
            hint="--fit (or --data) needs one-worker speeds of this GPU, or of K80 or P100",
        ) from error


def step_observation(row: WorkerStep, cnns: Mapping[str, Cnn]) -> StepObservation:
    cnn = cnn_of(cnns, row.model)
    return StepObservation(
        gpu=row.gpu, name=row.model, network=cnn.network, step_s=row.step_s, order=cnn.order
    )
