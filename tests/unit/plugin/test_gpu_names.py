"""What Slurm writes of a node's GPUs, and what people call them."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbtrain.sites.gpu_names import gpu_name, node_gpus
from sbtrain.slurm.gres import read_gres
from sbtrain_perf.gpu_figures import PUBLISHED_GPUS

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def forms(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from discovery_checks import gpu_forms

    return gpu_forms


def test_forms_of_real_sites(forms: ModuleType) -> None:
    assert len(forms.FORMS) == len(set(forms.FORMS)) >= 110
    assert forms.wrong_forms() == []


def test_the_bars_count_what_is_wrong(
    forms: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [row.value for row in forms.gpu_rows()] == [0, 0]
    monkeypatch.setattr(forms, "node_gpus", lambda *_, **__: ())
    told = [form for form in forms.UNTOLD if form.gpus]
    assert [row.met for row in forms.gpu_rows()] == [False, False]
    assert forms.gpu_rows()[1].value == len(told)


def test_the_word_for_sbatch_leads_back_to_the_name(forms: ModuleType) -> None:
    typed = [(one, form) for form in forms.FORMS for one in form.gpus if one.gres != "gpu"]
    assert len(typed) > 80
    for one, form in typed:
        if not one.guessed_from:
            back = node_gpus(read_gres(f"{one.gres}:{one.count}"), features=(), partitions=())
            assert back == (one,), form


@pytest.mark.parametrize("name", PUBLISHED_GPUS)
def test_every_name_with_figures_can_be_read(name: str) -> None:
    for kind in (name, name.lower(), name.upper(), f"nvidia_{name.replace(' ', '_').lower()}"):
        assert gpu_name(kind) == name


@given(letters=st.text("abghklmprstvx0123456789_-.", max_size=8))
def test_a_type_keeps_its_word_or_gets_a_name_with_figures(letters: str) -> None:
    name = gpu_name(letters)
    whole = name.partition("-")[0]
    assert name == letters or whole in PUBLISHED_GPUS
    if name in PUBLISHED_GPUS and name != letters:
        stem = whole.lower().split()[-1]
        assert stem in letters


@given(text=st.text("gpures:/=,()0123456789axIDX-. _", max_size=40))
def test_any_text_is_read(text: str) -> None:
    for one in read_gres(text):
        assert one.name
        assert one.count >= 0
