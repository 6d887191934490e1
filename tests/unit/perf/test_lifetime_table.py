"""Laws as a table say what each says alone."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sbtrain_perf.models.lifetime import Lifetime
from sbtrain_perf.models.lifetime_table import LifetimeTable

HAZARDS = st.one_of(st.just(0.0), st.floats(1e-7, 1e-2))


@st.composite
def laws(draw: st.DrawFn) -> Lifetime:
    edges = sorted(draw(st.sets(st.integers(1, 200_000), max_size=6)))
    hazards = draw(st.lists(HAZARDS, min_size=len(edges) + 1, max_size=len(edges) + 1))
    return Lifetime(
        edges_s=tuple(map(float, edges)),
        hazards_1_s=tuple(hazards),
        cap_s=draw(st.sampled_from([math.inf, 40_000.0])),
    )


@settings(max_examples=60, deadline=None)
@given(
    st.lists(laws(), min_size=1, max_size=5),
    st.sampled_from([0.0, 1.0, 999.0, 40_000.0, 1e7, math.inf]),
)
def test_each_row_is_its_law(several: list[Lifetime], age_s: float) -> None:
    table = LifetimeTable.of(
        [law.edges_s for law in several],
        [law.hazards_1_s for law in several],
        [law.cap_s for law in several],
    )
    age = np.full(len(several), age_s)
    alive = [float(law.survival(age_s)) for law in several]
    lived = [float(law.lived_s(age_s)) for law in several]
    assert table.survival(age).tolist() == pytest.approx(alive, rel=1e-9, abs=1e-15)
    assert table.lived_s(age).tolist() == pytest.approx(lived, rel=1e-9)
    never = [not any(law.hazards_1_s) and math.isinf(law.cap_s) for law in several]
    assert table.interrupts.tolist() == [not one for one in never]


def test_rows_repeat_and_hazards_add_up() -> None:
    table = LifetimeTable.of([(100.0,), ()], [(0.01, 0.0), (0.001,)])
    at = np.array([1, 0, 0])
    assert table.rows(at).struck(np.array([50.0, 50.0, 500.0])).tolist() == pytest.approx(
        [0.05, 0.5, 1.0]
    )
