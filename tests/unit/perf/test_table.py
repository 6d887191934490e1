"""Tables and prose fit the width they are given, and lose nothing by it."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbtrain_perf.table import Column, laid_out, wrapped

RUNS = (
    Column(title="run"),
    Column(title="job", right=True),
    Column(title="state"),
    Column(title="causes"),
)
ROWS = (
    ("digits-20261130-101500-a1b2c3", "7", "completed", "preempted, completed"),
    ("mnist-20261130-111500-d4e5f6", "1234567_12", "running", ", ".join(["preempted"] * 9)),
)


def lines(width: int) -> list[str]:
    return [line for block in laid_out(RUNS, ROWS, width=width) for line in block]


def test_where_there_is_room_a_row_is_a_line() -> None:
    head, first, second = lines(200)
    assert head.index("causes") == first.index("preempted") == second.index("preempted")
    assert first.index("       7  completed") < head.index("state")


def test_a_long_last_cell_goes_on_below_itself() -> None:
    head, *rest = lines(90)
    column = head.index("causes")
    assert len(rest) > 2
    assert all(line[:column].strip() == "" for line in rest[2:])
    assert all(line[column] == "p" for line in rest)


def test_where_there_is_no_room_a_row_is_a_block_with_titles() -> None:
    said = lines(50)
    assert said[:2] == [ROWS[0][0], "    job 7, state completed,"]
    assert "causes preempted, completed" in said[2]
    assert not any("job" in line and "state" not in line for line in said if "7" not in line)


@given(
    st.lists(
        st.lists(st.text("ab -,", max_size=30), min_size=4, max_size=4), min_size=1, max_size=4
    ),
    st.integers(45, 220),
)
@example(list(map(list, ROWS)), 60)
def test_no_line_is_wider_than_asked_and_no_word_is_lost(
    rows: list[list[str]], width: int
) -> None:
    said = [line for block in laid_out(RUNS, rows, width=width) for line in block]
    assert max(map(len, said)) <= width
    shown = " ".join(said).replace(",", " ").split()
    words = {word for row in rows for cell in row for word in cell.replace(",", " ").split()}
    assert words - {"-"} <= set(shown)


def test_prose_fits_the_width_and_words_stay_whole() -> None:
    text = "a-long-word-" * 9 + " and " + "short words " * 40
    for width in (60, 80, 120, 300):
        assert width - 6 < max(map(len, wrapped("short words " * 40, width=width))) <= width
    for width in (10, 60, 100):
        assert " ".join(wrapped(text, width=width, hanging="")).split() == text.split()


def test_a_block_s_first_cell_is_cut_where_it_is_wider_than_all() -> None:
    columns = [Column(title=name) for name in ("run", "state", "why")]
    rows = [("r" * 83, "failed", "because"), ("short", "lost", "nobody knows")]
    for width in (60, 80):
        _, first, second = laid_out(columns, rows, width=width)
        assert max(map(len, [*first, *second])) <= width
        assert "".join(first[:2]) == "r" * 83
        assert second[0] == "short"


@pytest.mark.parametrize("unit", ["s", "min", "h", "d", "x", "%"])
def test_a_number_keeps_its_unit(unit: str) -> None:
    for width in range(12, 40):
        said = wrapped(f"one two three 42 {unit}, four 7 {unit}. five 8 {unit}", width=width)
        assert not any(line.strip().startswith(unit) for line in said)
        said = wrapped("one two 3 h 31 min, four 2 d 5 h and 2 min 3 s.", width=width)
        assert not any(line.strip().startswith(("31", "5", "3 s")) for line in said)
