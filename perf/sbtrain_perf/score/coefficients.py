"""``python -m sbtrain_perf.score.coefficients --data DIR``: the shipped figures, fitted anew.

Prints one JSON object a figure: value, unit and source. The closed forms they belong to are
in sbtrain_perf.models; DIR is laid out like the public data.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from sbtrain_perf.coefficients import Coefficient
from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.fitting.relative_regression import fit_relative
from sbtrain_perf.gpu_figures import PUBLISHED_GPUS
from sbtrain_perf.models.step_time import speed_ratio
from sbtrain_perf.score.cmdare import (
    Cnn,
    cnn_of,
    log_steps,
    read_cnns,
    read_worker_steps,
)
from sbtrain_perf.score.cmdare_cluster import fit_clusters, read_clusters
from sbtrain_perf.score.tables import ScoreError, read_table

Named = Iterator[tuple[str, Coefficient]]

SAVES = "cmdare/checkpoint_samples.csv"
MEBI = 2.0**20  # CM-DARE's megabytes are mebibytes


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m sbtrain_perf.score.coefficients", allow_abbrev=False
    )
    parser.add_argument("--data", required=True, type=Path, metavar="DIR")
    arguments = parser.parse_args(argv)
    try:
        figures = coefficients(arguments.data)
    except SbtrainError as error:
        sys.stderr.write(f"{parser.prog}: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"hint: {error.hint}\n")
        return error.exit_code
    plain = {name: dataclasses.asdict(figure) for name, figure in figures.items()}
    sys.stdout.write(json.dumps(plain, indent=2) + "\n")
    return 0


def coefficients(data: Path) -> dict[str, Coefficient]:
    """Every figure by its dotted name.

    Raises:
        ScoreError: a file that a figure is fitted on is missing.
    """
    cnns = read_cnns(data, data)
    figures: dict[str, Coefficient] = {}
    for part in (_step, _server, _write, _upload, _size, _latency):
        figures |= dict(part(data, cnns))
    return figures


def _step(data: Path, cnns: Mapping[str, Cnn]) -> Named:
    """models.step_time.step_s of each GPU, and of both together in K80 dies."""
    rows = [row for row in read_worker_steps(data) if row.gpu in PUBLISHED_GPUS]
    _need(len(rows), "cmdare/speed_single_worker.csv")
    terms = ("fixed_s", "tensor_s", "activation_s", "parameter_s")
    units = ("s", "s per tensor", "s per sqrt(parameter * tensor)", "s per parameter")
    gpus = sorted({row.gpu for row in rows})
    for name, kept in [*((gpu, {gpu}) for gpu in gpus), ("K80 dies", set(gpus))]:
        used = [row for row in rows if row.gpu in kept]
        speed = np.array(
            [
                speed_ratio(PUBLISHED_GPUS[row.gpu], PUBLISHED_GPUS["K80"])
                if name not in gpus
                else 1.0
                for row in used
            ]
        )
        networks = [cnn_of(cnns, row.model).network for row in used]
        counts = np.array([[n.parameters, n.tensors] for n in networks], dtype=float)
        design = np.column_stack(
            [
                np.ones(len(used)),
                counts[:, 1],
                np.sqrt(counts.prod(axis=1)) / speed,
                counts[:, 0] / speed,
            ]
        )
        measured = np.array([row.step_s for row in used])
        unknown = np.full(len(used), math.nan)
        fit = fit_relative(design, measured, unknown, sessions=False)
        error = 100.0 * np.abs(design @ fit.coefficients / measured - 1.0).mean()
        source = (
            f"our fit (non-negative, relative error) on CM-DARE speed_single_worker, batch "
            f"128, {len(used)} rows of {', '.join(sorted(kept))}: mean error {error:.1f} %"
        )
        for term, unit, value in zip(terms, units, fit.coefficients, strict=True):
            yield (
                f"compute.{name}.{term}",
                Coefficient(value=float(value), unit=f"{unit}, batch 128", source=source),
            )


def _server(data: Path, cnns: Mapping[str, Cnn]) -> Named:
    """models.parameter_server: what holds for a network that was never run."""
    clusters = read_clusters(data)
    _need(len(clusters), "cmdare/speed_cluster.csv")
    pairs = sorted({(cluster.model, cluster.gpu) for cluster in clusters})
    fit = fit_clusters(clusters, pairs, cnns, log_steps(pairs, cnns, data, data))
    source = (
        f"our fit (posterior mode) on {len(clusters)} CM-DARE clusters of K80 and P100, 1 and "
        f"2 servers, 1 to {max(c.workers for c in clusters)} workers; log sd "
    )
    units = {
        "log_tensor_s": "s per tensor and update",
        "log_parameter_byte_s": "s per byte and update",
        "log_sharpness": "exponent of the knee",
        "sharing": "exponent of the number of servers, variables unknown",
        "waiting": "share of the server's time in a lone worker's step",
    }
    for name, unit in units.items():
        index = fit.names[name,]
        value = float(fit.mode[index])
        yield (
            f"server.{name.removeprefix('log_')}",
            Coefficient(
                value=math.exp(value) if name.startswith("log_") else value,
                unit=unit,
                source=f"{source}{fit.draws[:, index].std():.2f}".replace(
                    "log sd", "log sd" if name.startswith("log_") else "sd"
                ),
            ),
        )


def _saves(data: Path, cnns: Mapping[str, Cnn], column: str, *, named: str) -> Named:
    """models.checkpoint.write_s: a save, from its network's tensors and parameters."""
    rows = list(read_table(data, SAVES))
    _need(len(rows), SAVES)
    networks = [cnn_of(cnns, row.name("model")).network for row in rows]
    design = np.array([[1.0, n.tensors, n.parameters] for n in networks])
    measured = np.array([row.positive(column) for row in rows])
    found, _ = nnls(design / measured[:, None], np.ones(len(rows)))
    error = 100.0 * np.abs(design @ found / measured - 1.0).mean()
    source = f"our fit on CM-DARE {column}, {len(rows)} saves: mean error {error:.1f} %"
    terms = {"fixed_s": "s", "tensor_s": "s per tensor", "parameter_s": "s per parameter"}
    for (term, unit), value in zip(terms.items(), found, strict=True):
        yield f"{named}.{term}", Coefficient(value=float(value), unit=unit, source=source)


def _write(data: Path, cnns: Mapping[str, Cnn]) -> Named:
    """To the local disk."""
    return _saves(data, cnns, "local_write_s", named="write")


def _upload(data: Path, cnns: Mapping[str, Cnn]) -> Named:
    """From the start of a save to its end on remote object storage, the write included."""
    return _saves(data, cnns, "duration_s", named="upload")


def _size(data: Path, cnns: Mapping[str, Cnn]) -> Named:
    """models.checkpoint.checkpoint_bytes."""
    per: dict[str, list[float]] = {"parameter": [], "tensor": []}
    for row in read_table(data, SAVES):
        network = cnn_of(cnns, row.name("model")).network
        meta_bytes = MEBI * row.positive("meta_mb")
        data_bytes = MEBI * row.positive("ckpt_mb") - meta_bytes
        per["parameter"].append(data_bytes / network.parameters)
        per["tensor"].append(meta_bytes / network.tensors)
    source = f"median over {len(per['tensor'])} saves of CM-DARE checkpoint_samples"
    for name, sizes in per.items():
        value = statistics.median(sizes)
        unit = f"bytes per {name}"
        yield f"checkpoint.{name}_bytes", Coefficient(value=value, unit=unit, source=source)


def _latency(data: Path, cnns: Mapping[str, Cnn]) -> Named:
    """models.parameter_server.latency_s: the rounds and the window, on a grid."""
    table = read_table(data, "cmdare/speed_vs_latency_supertable.csv")
    _need(len(table), "cmdare/speed_vs_latency_supertable.csv")
    steps: dict[tuple[str, str], dict[float, list[float]]] = {}
    for row in table:
        key = (row.name("gpu"), row.name("model"))
        latency_s = row.positive("latency_ms") / 1e3
        steps.setdefault(key, {}).setdefault(latency_s, []).append(row.positive("step_time_s"))
    added = []
    for (_, model), by_latency in steps.items():
        near, far = min(by_latency), max(by_latency)
        if far > near:
            extra_s = np.mean(by_latency[far]) - np.mean(by_latency[near])
            moved = 8.0 * cnn_of(cnns, model).network.parameters
            added.append((float(extra_s) / (far - near), moved))

    def misfit(fewest: float, window: float) -> float:
        return sum(
            math.log(max(fewest, moved / window) / rounds) ** 2 for rounds, moved in added
        )

    grid = [(f / 20, w * 1e5) for f in range(20, 100) for w in range(20, 100)]
    fewest, window = min(grid, key=lambda point: misfit(*point))
    source = f"our fit on CM-DARE speed_vs_latency at 0.3 and 30 ms, {len(added)} CNNs on K80"
    yield "latency.fewest_rounds", Coefficient(value=fewest, unit="round trips", source=source)
    yield "latency.window_bytes", Coefficient(value=window, unit="bytes", source=source)


def _need(rows: int, name: str) -> None:
    if not rows:
        raise ScoreError(f"no rows in {name}", hint="--data must hold the public data")


if __name__ == "__main__":
    sys.exit(main())
