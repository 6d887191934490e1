"""Lifetimes, goodput and regret on the public measurements beside the checkout."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

import pytest

from sbtrain_perf.fitting.lifetime import CMDARE_PRIOR, fit_prior
from sbtrain_perf.regret.choosing import choices_on, summarise
from sbtrain_perf.regret.curves import all_curves
from sbtrain_perf.score.cmdare_lifetime import ended_by_hour, read_aged

ROOT = Path(__file__).resolve().parents[3]
DATA = ROOT.parent / "shared" / "data"
pytestmark = pytest.mark.skipif(
    not (DATA / "cmdare" / "lifetime_cdf.csv").is_file(),
    reason="no shared data beside the checkout",
)


def test_the_shipped_prior_is_what_the_public_lifetimes_say() -> None:
    found = fit_prior(list(ended_by_hour(read_aged(DATA)).values()))
    assert dataclasses.asdict(found) == pytest.approx(
        dataclasses.asdict(CMDARE_PRIOR), rel=0.05
    )


def test_choices_from_few_points_meet_their_bars() -> None:
    choices = [choice for curve in all_curves(DATA) for choice in choices_on(curve, "time")]
    rules = {row.rule: row for row in summarise(choices) if row.source == "all"}
    assert rules["ours"].within_5 >= 0.90
    assert (rules["ours"].right_servers or 0.0) >= 0.95
    assert rules["ours"].mean_regret < rules["most"].mean_regret


@pytest.mark.slow
def test_the_goodput_bars_are_met(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = importlib.import_module("accuracy_checks.goodput")
    assert [line.what for line in module.checks(DATA, tmp_path) if not line.met] == []
