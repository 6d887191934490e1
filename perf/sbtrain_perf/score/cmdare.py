"""The CM-DARE files as values: networks, one-worker step times, checkpoints, clusters."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from sbtrain_perf.fitting.step_time import Network, network_of
from sbtrain_perf.score.tables import ScoreError, Table, read_table


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


def cnn_of(cnns: dict[str, Cnn], name: str) -> Cnn:
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
