"""Shipped coefficients say where they come from; files of refits are read strictly."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from attempts import example_step

from sbtrain_perf.coefficients import (
    Coefficient,
    Learnt,
    LearntModel,
    LearntStart,
    coefficients_from_json,
    coefficients_to_json,
    learnt_model,
    load_coefficients,
    with_learnt,
)
from sbtrain_perf.errors import CoefficientsError

LEARNT = Learnt(
    steps=(example_step(layout="ps", transfer_s=0.0, hop_s=0.0, server_s=0.004, nodes=(3,)),),
    starts=(
        LearntStart(
            cluster="private", workload="digits", fixed_s=9.0, node_s=0.5, runs=("run-1",)
        ),
    ),
    models=(LearntModel(workload="digits", parameters=77_850, tensors=30),),
)


def test_every_shipped_coefficient_has_a_unit_and_a_source() -> None:
    base = load_coefficients().base
    groups = [getattr(base, group.name) for group in dataclasses.fields(base)]
    entries = [getattr(group, f.name) for group in groups for f in dataclasses.fields(group)]
    assert len(entries) > 20
    for entry in entries:
        assert isinstance(entry, Coefficient)
        assert entry.unit
        assert len(entry.source) > 10


def test_shipped_coefficients_are_generation_0() -> None:
    assert load_coefficients().generation == 0
    assert load_coefficients().label == "shipped"


def test_what_was_learnt_survives_the_file(tmp_path: Path) -> None:
    learnt = with_learnt(load_coefficients(), LEARNT, ("run-1",))
    path = tmp_path / "coefficients.json"
    path.write_text(coefficients_to_json(learnt))
    read = load_coefficients(path)
    assert read == learnt
    assert read.label == "generation 1"
    model = learnt_model(read, "digits")
    assert model is not None
    assert model.parameters == 77_850
    assert learnt_model(read, "other") is None


def test_a_refits_file_leaves_the_shipped_base_out_so_that_upgrades_reach_it() -> None:
    learnt = with_learnt(load_coefficients(), LEARNT, ("run-1",))
    assert json.loads(coefficients_to_json(learnt))["base"] is None


def test_a_changed_base_is_kept() -> None:
    shipped = load_coefficients()
    start = dataclasses.replace(
        shipped.base.start, fixed_s=Coefficient(value=3.0, unit="s", source="by hand")
    )
    changed = with_learnt(
        dataclasses.replace(shipped, base=dataclasses.replace(shipped.base, start=start)),
        Learnt(),
        (),
    )
    assert coefficients_from_json(coefficients_to_json(changed), source="x") == changed


def test_a_missing_file_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(CoefficientsError, match="No such file") as caught:
        load_coefficients(tmp_path / "none.json")
    assert caught.value.hint
    assert caught.value.exit_code == 5


def changed_file(place: tuple[str | int, ...], value: object) -> str:
    learnt = with_learnt(load_coefficients(), LEARNT, ("run-1",))
    data = json.loads(coefficients_to_json(learnt))
    data["base"] = json.loads(coefficients_to_json(load_coefficients()))["base"]
    spot = data
    for key in place[:-1]:
        spot = spot[key]
    spot[place[-1]] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("base", "start", "fixed_s", "value"), -1.0, "base.start.fixed_s: -1.0 is out of"),
        (("base", "failure", "node_mtbf_s", "value"), 0, "node_mtbf_s: 0 is out of range"),
        (("base", "start", "fixed_s", "value"), float("nan"), "not a finite number"),
        (("base", "start", "fixed_s", "sauce"), "x", "base.start.fixed_s.sauce: unknown key"),
        (("learnt", "steps", 0, "compute_s"), -0.1, r"learnt.steps\[0\].compute_s"),
        (("learnt", "steps", 0, "batch_per_worker"), 0, "batch_per_worker: 0 is out"),
        (("learnt", "steps", 0, "layout"), "mesh", "'mesh' is not one of"),
        (("version",), 2, "has version 2"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_its_place(
    place: tuple[str | int, ...], value: object, said: str
) -> None:
    with pytest.raises(CoefficientsError, match=said):
        coefficients_from_json(changed_file(place, value), source="coefficients.json")


@pytest.mark.parametrize("text", ["", "[]", "3", '{"version": 1', "[" * 100_000])
def test_what_is_no_coefficients_file_is_refused(text: str) -> None:
    with pytest.raises(CoefficientsError):
        coefficients_from_json(text, source="coefficients.json")
