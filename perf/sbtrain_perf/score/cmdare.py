"""The CM-DARE files as values: networks, one-worker step times, checkpoints, clusters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from sbtrain_perf.score.tables import ScoreError, Table, read_table

OTHER_DAY_SD = 0.05  # of log step time between days and hosts: K80 1 %, P100 up to 17 %


@dataclass(frozen=True, slots=True, kw_only=True)
class Cnn:
    """A line of models.csv. order: its place in the file, which is the campaign's order."""

    name: str
    order: float
    network: Network
    published_gflops: float
    checkpoint_mb: float | None
    data_mb: float | None
    meta_mb: float | None
    index_kb: float | None


def read_cnns(fit_dir: Path, score_dir: Path) -> dict[str, Cnn]:
    """The features of all CNNs that either folder knows; the fit folder's order goes first."""
    found: dict[str, Cnn] = {}
    for folder in (fit_dir, score_dir):
        for row in read_table(folder, "cmdare/models.csv"):
            name = row.text("model")
            if name not in found:
                found[name] = Cnn(
                    name=name,
                    order=float(len(found)),
                    network=network_of(row.whole("n_params"), row.whole("n_tensors")),
                    published_gflops=row.optional("model_flops_gf") or math.nan,
                    checkpoint_mb=row.optional("ckpt_mb"),
                    data_mb=row.optional("ckpt_data_mb"),
                    meta_mb=row.optional("ckpt_meta_mb"),
                    index_kb=row.optional("ckpt_index_kb"),
                )
    return found


def cnn_of(cnns: Mapping[str, Cnn], name: str) -> Cnn:
    """Raises ScoreError where models.csv has no line for the model."""
    try:
        return cnns[name]
    except KeyError:
        raise ScoreError(
            f"cmdare/models.csv has no model {name!r}",
            hint="every scored model needs its features there, in either folder",
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStep:
    """Mean step time of one worker; run names the measurement (0lat, base)."""

    gpu: str
    model: str
    run: str
    step_s: float


def read_worker_steps(folder: Path) -> list[WorkerStep]:
    """speed_single_worker.csv, or the mean of its samples where only they are there."""
    table = read_table(folder, "cmdare/speed_single_worker.csv")
    column = "step_time_mean_s"
    if not table.rows:
        table = read_table(folder, "cmdare/speed_single_worker_samples.csv")
        column = "step_time_s"
    return _mean_steps(table, column, run="0lat")


def read_base_steps(folder: Path) -> list[WorkerStep]:
    """speed_base_k80_p100_v100.csv: another day's runs of four models."""
    table = read_table(folder, "cmdare/speed_base_k80_p100_v100.csv")
    return _mean_steps(table, "step_time_s", run="base")


def _mean_steps(table: Table, column: str, *, run: str) -> list[WorkerStep]:
    samples: dict[tuple[str, str], list[float]] = {}
    for row in table:
        key = (row.text("gpu"), row.text("model"))
        samples.setdefault(key, []).append(row.number(column))
    return [
        WorkerStep(gpu=gpu, model=model, run=run, step_s=sum(times) / len(times))
        for (gpu, model), times in samples.items()
    ]


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
            hint="--fit needs one-worker speeds of this GPU, or of K80 or P100",
        ) from error


def step_observation(row: WorkerStep, cnns: Mapping[str, Cnn]) -> StepObservation:
    cnn = cnn_of(cnns, row.model)
    return StepObservation(
        gpu=row.gpu, name=row.model, network=cnn.network, step_s=row.step_s, order=cnn.order
    )
