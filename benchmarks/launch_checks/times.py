"""Whether step times learnt from scripts that know nothing of sbtrain are those of the
scripts' own clocks, and whether the next run of each takes as long a step as it was planned."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from bench_table import BenchRow

from launch_checks.tries import SBTRAIN, Try, try_script
from sbtrain_perf.measured import step_seconds
from sbtrain_perf.timing_log import AttemptTimings, RankSteps, read_timing_log

TIMED = Path(__file__).resolve().parents[1] / "timed_scripts"
NEEDS: Mapping[str, str] = {
    "pytorch_ddp": "torch",
    "lightning_trainer": "lightning",
    "accelerate_loop": "accelerate",
    "transformers_trainer": "transformers",
    "horovod_torch": "horovod",
    "keras_fit": "tensorflow",
    "tensorflow_loop": "tensorflow",
    "tensorflow_servers": "tensorflow",
    "jax_loop": "jax",
}
ON_ONE_NODE = ("keras_fit",)
_CLOCK = re.compile(r"clock (\d+)((?: [\d.e+-]+)+)$", re.M)
WITHIN, PREDICTED_WITHIN = 3, 25  # per cent
INF = float("inf")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One run. planned: seconds a step; learnt: what refit takes of its timing log; clock:
    the same of what the script's own clock said; logged, own: medians, of servers means."""

    planned: float
    learnt: float
    clock: float
    logged: float
    own: float

    @property
    def off(self) -> float:
        return max(abs(self.learnt / self.clock - 1), abs(self.logged / self.own - 1))

    @property
    def missed(self) -> float:
        """How far the plan was off what the script's own clock said."""
        return abs(self.planned / self.clock - 1)


def times_rows(environ: Mapping[str, str], place: Path, only: str) -> list[BenchRow]:
    names = [name for name in NEEDS if only in ("", name)]
    missing = [name for name in names if find_spec(NEEDS[name]) is None]
    for name in missing:
        sys.stderr.write(f"skipped: {name}: {NEEDS[name]} is not installed\n")
    names = [name for name in names if name not in missing]
    rows = []
    for name in names:
        nodes = "-N1" if name in ON_ONE_NODE else "-N2"
        before = timed_run(environ, place, name, nodes)
        learn(environ)
        # At once: what else the machine does changes.
        again = timed_run(environ, place, name, nodes)
        yard = f"clock {again.clock:.4f} s" if again else "no clock"
        both = [one.off for one in (before, again) if one]
        rows += [
            BenchRow(
                what=f"{name}: % that a step's learnt time is off its own clock",
                yardstick=yard,
                value=100 * max(both) if len(both) == 2 else INF,
                bar=WITHIN,
            ),
            BenchRow(
                what=f"{name}: % that a step's planned time is off, after a run and a refit",
                yardstick=f"{100 * before.missed:.0f} before" if before else "no run",
                value=100 * again.missed if again else INF,
                bar=PREDICTED_WITHIN,
            ),
        ]
    rows += [
        BenchRow(what=f"{name} is not installed", yardstick="", value=1, bar=0)
        for name in missing
    ]
    return rows


def learn(environ: Mapping[str, str]) -> None:
    """Refit from all runs so far."""
    refit = [str(Path(SBTRAIN).with_name("sbtrainctl")), "refit"]
    said = subprocess.run(
        refit, env=dict(environ), capture_output=True, text=True, timeout=120, check=False
    )
    sys.stderr.write(said.stdout + said.stderr)


def timed_run(environ: Mapping[str, str], place: Path, name: str, *words: str) -> Timed | None:
    """Of timed_scripts; None where it did not end well, or nothing was timed."""
    folder = place / f"timed-{name}-{len(list(place.iterdir()))}"
    script, environ = TIMED / f"{name}.py", {**environ, "OMP_NUM_THREADS": "1"}
    found = try_script(environ, folder, script, *words)
    timed = _timed(found)
    told = timed or found.output[-2000:] or found.refused
    sys.stderr.write(f"{name}: {found.state or 'refused'}: {told}\n")
    return timed


def _timed(found: Try) -> Timed | None:
    if found.state != "COMPLETED" or found.run_folder is None:
        return None
    timings = read_timing_log(found.run_folder / "attempts/0/timings.h5")
    logs = found.run_folder.glob("attempts/*/*.log")
    said = [one for log in logs for one in _CLOCK.findall(log.read_text(errors="replace"))]
    clocks = [(int(rank), np.array(list(map(float, times.split())))) for rank, times in said]
    by_clock = _as_logged(timings, clocks)
    shared = [
        min(len(ours.seconds), len(own.seconds))
        for ours, own in zip(timings.ranks, by_clock.ranks, strict=False)
    ]
    last = min(shared, default=0)  # of the very first step some clocks know nothing
    timings, by_clock = _last_steps(timings, last), _last_steps(by_clock, last)
    learnt, clock = step_seconds(timings), step_seconds(by_clock)
    if learnt is None or clock is None:
        return None
    # Under servers one reading of the clock is of many updates.
    middle = np.mean if timings.layout == "ps" else np.median
    return Timed(
        planned=timings.prediction.step_s,
        learnt=learnt,
        clock=clock,
        logged=float(middle(timings.ranks[0].seconds[10:])),
        own=float(middle(by_clock.ranks[0].seconds[10:])),
    )


def _last_steps(timings: AttemptTimings, count: int) -> AttemptTimings:
    ranks = tuple(
        dataclasses.replace(one, step=one.step[-count:], seconds=one.seconds[-count:])
        for one in timings.ranks
    )
    return dataclasses.replace(timings, ranks=ranks)


def _as_logged(timings: AttemptTimings, clocks: list[tuple[int, np.ndarray]]) -> AttemptTimings:
    """As if the scripts' clocks had written the timing log. One of servers is the chief's."""
    chief = timings.ranks[0].rank if timings.layout == "ps" else 0
    ranks = tuple(
        RankSteps(
            rank=chief + rank,
            step=np.arange(1, len(seconds) + 1),
            seconds=seconds,
            samples_per_step=0,
        )
        for rank, seconds in sorted(clocks, key=lambda one: one[0])
    )
    return dataclasses.replace(timings, ranks=ranks)
