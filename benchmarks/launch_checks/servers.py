"""What a second parameter server is worth to a model that one holds back: as planned from runs
with one, and as measured."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from bench_table import BenchRow

from launch_checks.times import INF, Timed, learn, timed_run

SCRIPT = "slow_servers"
WITHIN = 15  # per cent


def server_rows(environ: Mapping[str, str], place: Path, only: str) -> list[BenchRow]:
    if only not in ("", SCRIPT):
        return []
    if find_spec("tensorflow") is None:
        sys.stderr.write(f"skipped: {SCRIPT}: tensorflow is not installed\n")
        return [BenchRow(what=f"{SCRIPT}: tensorflow is missing", yardstick="", value=1, bar=0)]
    runs: dict[tuple[int, int], Timed | None] = {}
    for workers, servers in ((1, 1), (4, 1), (4, 2)):  # the last is planned from the others
        words = (
            "-p",
            "spot",
            f"-N{workers + servers}",
            f"--train-layout=tensorflow-ps:{servers}",
        )
        runs[workers, servers] = timed_run(environ, place, SCRIPT, *words)
        learn(environ)
    one, two = runs[4, 1], runs[4, 2]
    if one is None or two is None:
        off, yard = INF, "a run without times"
    else:
        measured, planned = one.clock / two.clock, one.learnt / two.planned
        off = 100 * abs(planned / measured - 1)
        yard = f"x{measured:.2f} measured, x{planned:.2f} planned"
    what = "% that the planned speed-up of a second server is off the measured one"
    return [BenchRow(what=what, yardstick=yard, value=off, bar=WITHIN)]
