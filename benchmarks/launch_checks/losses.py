"""Whether one small model is trained to the same losses under every layout, comes back from a
preemption under each, and whether an exit status is told as it is."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from bench_table import BenchRow

from launch_checks.tries import Try, try_script

EXAMPLES = Path(__file__).resolve().parents[2] / "jobs" / "examples"
NEEDS = {
    "mpi_numpy": "mpi4py",
    "pytorch_ddp": "torch",
    "jax_sharded": "jax",
    "horovod_torch": "horovod",
    "tensorflow_allreduce": "tensorflow",
}
SERVERS = "tensorflow_servers"
_LOSS = re.compile(r"^step (\d+) of \d+: loss ([\d.]+)$", re.M)
_RESUMED = re.compile(r"resumes after step (\d+)")
BAND = 0.25  # of the last loss, between asynchronous updates and synchronous ones


def loss_rows(environ: Mapping[str, str], place: Path, only: str) -> list[BenchRow]:
    names = [name for name in (*NEEDS, SERVERS) if only in ("", name)]
    missing = [name for name in names if find_spec(NEEDS.get(name, "tensorflow")) is None]
    for name in missing:
        sys.stderr.write(f"skipped: {name}: {NEEDS[name]} is not installed\n")
    names = [name for name in names if name not in missing]
    losses = {name: _losses(_run(environ, place, name, "--steps=10")) for name in names}
    together = [losses[name] for name in names if name != SERVERS]
    rows = [
        BenchRow(
            what="largest difference of a loss between all-reduce layouts, 10 steps",
            yardstick=f"{len(together)} layouts",
            value=_spread(together) if len(names) > 1 and not missing else float("inf"),
            bar=1e-5,
        )
    ]
    if SERVERS in losses and together:
        off = abs(losses[SERVERS].get(10, 9.0) / together[0].get(10, 1.0) - 1.0)
        rows.append(
            BenchRow(
                what="servers' tenth loss, off by",
                yardstick="all-reduce",
                value=off,
                bar=BAND,
            )
        )
    lost = [name for name in names if not _comes_back(environ, place, name)]
    untrue = [name for name in names if not _fails_truly(environ, place, name)]
    yard = f"{len(names)} layouts"
    return [
        *rows,
        BenchRow(
            what=f"layouts that do not come back from a preemption {' '.join(lost)}".rstrip(),
            yardstick=yard,
            value=len(lost) + len(missing),
            bar=0,
        ),
        BenchRow(
            what=f"layouts whose exit status is not told {' '.join(untrue)}".rstrip(),
            yardstick=yard,
            value=len(untrue) + len(missing),
            bar=0,
        ),
    ]


def _run(
    environ: Mapping[str, str], place: Path, name: str, *args: str, words: tuple[str, ...] = ()
) -> Try:
    folder = place / f"{name}{len(list(place.iterdir()))}"
    found = try_script(environ, folder, EXAMPLES / f"{name}.py", "-N2", *words, args=args)
    sys.stderr.write(f"{name} {' '.join(args)}: {found.state or found.refused}\n")
    return found


def _losses(found: Try) -> dict[int, float]:
    return {int(step): float(loss) for step, loss in _LOSS.findall(found.output)}


def _spread(series: list[dict[int, float]]) -> float:
    if not series or any(set(range(1, 11)) - set(one) for one in series):
        return float("inf")
    return max(
        max(one[step] for one in series) - min(one[step] for one in series)
        for step in range(1, 11)
    )


def _comes_back(environ: Mapping[str, str], place: Path, name: str) -> bool:
    """Preempted once by an urgent job on its first node, after its first save."""
    preempts = threading.Thread(target=_preempt, args=(environ, place), daemon=True)
    preempts.start()
    steps = ("--steps=150", "--step-ms=100")
    found = _run(environ, place, name, *steps, words=("-pspot", "-wg1,g2", "--requeue"))
    preempts.join(10)
    resumed = [int(step) for step in _RESUMED.findall(found.output)]
    ok = found.state == "COMPLETED" and "step 150 of 150" in found.output and any(resumed)
    if not ok:
        sys.stderr.write(f"{name}: {found.state}, resumed {resumed}: {found.output[-900:]}\n")
    return ok


def _preempt(environ: Mapping[str, str], place: Path) -> None:
    until_s = time.monotonic() + 120
    while time.monotonic() < until_s:
        outputs = sorted(place.glob("*/slurm-*.out"), key=lambda path: path.stat().st_mtime)
        newest = outputs[-1].read_text(errors="replace") if outputs else ""
        if "step 50 of 150" in newest and "step 150 of 150" not in newest:
            break
        time.sleep(0.5)
    words = ("--partition=urgent", "--nodelist=g1", "--exclusive", "--time=1", "--wrap=sleep 1")
    subprocess.run(
        ["sbatch", "--output=/dev/null", *words], env=dict(environ), check=False, timeout=60
    )


def _fails_truly(environ: Mapping[str, str], place: Path, name: str) -> bool:
    """A rank that ends with 3 ends the job with 3."""
    found = _run(environ, place, name, "--steps=20", "--fail-at=5")
    said = subprocess.run(
        ["scontrol", "show", "job", found.job],
        env=dict(environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    ).stdout
    return found.state == "FAILED" and "ExitCode=3:0" in said
