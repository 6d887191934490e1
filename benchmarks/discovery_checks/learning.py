"""Whether what is learnt on a cluster that nobody has described serves as well as on one that
a site file does: the fifth run of a script, planned from the four before it."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench_table import BenchRow

from discovery_checks.calls import SBTRAIN, TRAINS, call, ended
from discovery_checks.shapes import Shape, running

RUNS, STEPS = 5, 300
WITHIN = 10  # per cent
_SITE = """\
name = "described"
shared_gb_s = 2
shared_client_gb_s = 1
[partitions.main]
nodes = 8
cores_per_node = 4
network_gbit_s = 10
scratch_gb_s = 1
"""


def learning_rows() -> list[BenchRow]:
    """Run by run in turn, so that both have the same machine."""
    with (
        running(Shape(what="one partition, nothing else")) as environ,
        tempfile.TemporaryDirectory() as place,
    ):
        folder = Path(place)
        (folder / "train.py").write_text(TRAINS.replace("0.01", "0.03"))
        (folder / "site.toml").write_text(_SITE)
        off: dict[str, list[float]] = {"": [], f"--train-site={folder}/site.toml": []}
        for _ in range(RUNS):
            for site, found in off.items():
                home = folder / ("described" if site else "unknown")
                found.append(_off({**environ, "SBTRAIN_HOME": str(home)}, folder, site))
    unknown, described = off.values()
    sys.stderr.write(f"% off, run by run: {_shown(unknown)}; described: {_shown(described)}\n")
    return [
        BenchRow(
            what=f"% that the prediction of run {RUNS} is off, without any file",
            yardstick=f"{100 * described[-1]:.1f} with a site file",
            value=100 * unknown[-1],
            bar=WITHIN,
        )
    ]


def _off(environ: Mapping[str, str], folder: Path, site: str) -> float:
    """How far off one run's whole time was; it is learnt from then."""
    words = ("--parsable", f"--train-steps={STEPS}", "-N2", "-o", "run.out", "train.py")
    said = call(environ, folder, SBTRAIN, *([site] if site else []), *words)
    state = ended(environ, folder, said.stdout.strip()) if said.returncode == 0 else "refused"
    shown = call(environ, folder, f"{SBTRAIN}ctl", "status", "last", "--json").stdout
    learnt = call(environ, folder, f"{SBTRAIN}ctl", "refit")
    if state != "COMPLETED" or learnt.returncode:
        sys.stderr.write(f"wrong: {state}; {said.stderr}{learnt.stderr}\n")
        return float("inf")
    (run,) = json.loads(shown)
    return abs(float(run["predicted_s"]) / float(run["took_s"]) - 1.0)


def _shown(off: list[float]) -> str:
    return ", ".join(f"{100 * one:.0f}" for one in off)
