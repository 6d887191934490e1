"""Whether `sbtrainctl status` is right in the written ends of the tests, and its tables fit."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench_table import BenchRow

from sbtrain.commands.status import detail, table

if TYPE_CHECKING:
    from sbtrain.runs.run_status import RunStatus

TESTS = Path(__file__).resolve().parents[2] / "tests"
WIDTHS = (60, 80, 120)
RUN_IDS = [f"{name}-20261201-034608-80d8fa" for name in ("train_digits", "n" * 60)]


def ends_rows() -> list[BenchRow]:
    """The ends that are told wrongly, and the tables that are too wide; each is printed."""
    sys.path.append(str(TESTS))
    from end_records import differences, status_of
    from written_ends import WRITTEN_ENDS

    shown: list[RunStatus] = []
    wrong = 0
    for end in WRITTEN_ENDS:
        with tempfile.TemporaryDirectory() as place:
            status = status_of(end, Path(place))
        shown += [replace(status, run_id=run_id) for run_id in RUN_IDS]
        if said := differences(end, status):
            wrong += 1
            print(f"wrong of {end.injected!r}: {'; '.join(said)}")
    return [
        BenchRow(
            what="ends of runs that status tells wrongly",
            yardstick=f"{len(WRITTEN_ENDS)} written ends",
            value=wrong,
            bar=0,
        ),
        BenchRow(
            what="tables of status wider than the terminal",
            yardstick=f"at {', '.join(map(str, WIDTHS))} columns",
            value=sum(_too_wide(shown, width) for width in WIDTHS),
            bar=0,
        ),
    ]


def _too_wide(shown: Sequence[RunStatus], width: int) -> int:
    """Of the list, and of each run alone, in which a path or a run's id is never cut."""
    lists = [table(shown, width=width), *(table([one], width=width) for one in shown)]
    wide = [max(map(len, text.splitlines())) > width for text in lists]
    for one in shown:
        lines = detail(one, width=width).splitlines()
        wide.append(any(len(line) > width and len(line.split()) > 2 for line in lines))
    return sum(wide)
