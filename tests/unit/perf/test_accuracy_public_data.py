"""Accuracy on the public measurements that lie beside the checkout, where they do."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

import pytest

from sbtrain_perf.coefficients import load_coefficients
from sbtrain_perf.models.residual_network import recognise
from sbtrain_perf.score import cmdare_cluster, tdl
from sbtrain_perf.score.coefficients import coefficients
from sbtrain_perf.score.tables import read_table

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT.parent / "shared" / "data"
pytestmark = pytest.mark.skipif(
    not (DATA / "cmdare").is_dir(), reason="no shared data beside the checkout"
)


def test_every_published_network_is_recognised() -> None:
    rows = list(read_table(DATA, "cmdare/models.csv"))
    assert rows
    for row in rows:
        network = recognise(row.whole("n_params"), row.whole("n_tensors"))
        assert network is not None, row.source
        assert network.branches == (1 if row.text("family") == "resnet" else 2)
        assert 0 < sum(network.variables) - row.whole("n_params") < 30_000


def test_shipped_figures_are_what_the_public_data_say() -> None:
    found = coefficients(DATA)
    assert found["checkpoint.parameter_bytes"].value == pytest.approx(8.0, rel=0.02)
    assert found["latency.fewest_rounds"].value == pytest.approx(2.4, abs=0.3)
    assert found["write.tensor_s"].value == pytest.approx(2.9e-3, rel=0.1)
    assert all(figure.value >= 0.0 and figure.unit for figure in found.values())
    base = load_coefficients().base
    shipped = {
        f"{group.name}.{field.name}": getattr(getattr(base, group.name), field.name)
        for group in dataclasses.fields(base)
        for field in dataclasses.fields(getattr(base, group.name))
    }
    printed = [
        name
        for name, figure in shipped.items()
        if "sbtrain_perf.score.coefficients prints it" in figure.source
    ]
    assert {"server.tensor_s", "server.sharpness"} <= set(printed)
    for name in printed:
        assert shipped[name].value == pytest.approx(found[name].value, rel=0.01), name


def test_clusters_and_runs_are_fitted_to_within_their_noise() -> None:
    ours = {
        score.group: score
        for score in cmdare_cluster.score(DATA, DATA)
        if score.model == "ours"
    }
    assert (ours["all"].mape or 99.0) < 4.0
    steady = [
        score
        for score in tdl.score(DATA, DATA)
        if score.model == "ours" and "spot" not in score.group
    ]
    assert all((score.mape or 99.0) < 4.0 for score in steady)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cmdare", "tdl"])
def test_every_bar_is_met(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module(f"accuracy_checks.{name}")
    missed = [c.what for c in module.checks(DATA, tmp_path) if not (c.met and c.covered)]
    assert missed == []
