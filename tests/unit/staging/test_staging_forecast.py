"""What `plan` says of staging, shards and streaming."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from sbtrain_staging.engine.estimate import forecast, shown_forecasts
from sbtrain_staging.engine.simulate import Rates
from sbtrain_staging.sources.scan import scan
from staging_trees import write_file

MB = 1_000_000


def found(tmp_path: Path, *, nodes: int, scratch: float):
    source = write_file(tmp_path / "data", 10 * MB)
    rates = Rates(
        source_bytes_per_s=1 * MB, link_bytes_per_s=2 * MB, scratch_bytes_per_s=scratch
    )
    return forecast(scan(source), nodes, rates)


def test_streaming_wins_while_epochs_are_few(tmp_path: Path) -> None:
    said = found(tmp_path, nodes=4, scratch=5 * MB)
    assert said.in_place_s == 10
    assert said.local_s == pytest.approx(0.5)
    few, many = math.floor(said.stream_epochs), math.ceil(said.stream_epochs)
    assert few * said.in_place_s <= said.replicate_s + few * said.local_s
    assert many * said.in_place_s >= said.replicate_s + many * said.local_s
    assert f"--mode stream wins for up to {few} epochs" in shown_forecasts([said])


def test_streaming_wins_always_on_slow_scratch(tmp_path: Path) -> None:
    said = found(tmp_path, nodes=1, scratch=0.5 * MB)
    assert "--mode stream wins always" in shown_forecasts([said])


def test_an_exchange_is_cheaper_than_reading_again(tmp_path: Path) -> None:
    said = found(tmp_path, nodes=4, scratch=50 * MB)
    assert said.exchange_s == pytest.approx(10 / 4 * 3 / 4 / 2, rel=1e-3)
    assert said.exchange_s < said.shard_s
