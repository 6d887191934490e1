"""Whether scripts as their frameworks' documentation writes them come up right at the first
try, and whether mistakes in them are told.

    benchmarks/launch.py [--only first|twins|loss|ports|times|servers|overhead] [--script NAME]

Prints a table, writes build/bench-launch.json, exits 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from bench_table import BenchRow, finish
from launch_checks.losses import loss_rows
from launch_checks.overhead import overhead_rows
from launch_checks.ports import port_rows
from launch_checks.servers import server_rows
from launch_checks.times import times_rows
from launch_checks.tries import try_script
from launch_checks.twins import TWINS

from sbtrain.cluster import down, up

SCRIPTS = Path(__file__).resolve().parent / "launch_scripts"
NEEDS: Mapping[str, str] = {
    **dict.fromkeys(("pytorch_ddp", "pytorch_fsdp"), "torch"),
    **dict.fromkeys(("lightning_trainer", "lightning_fabric"), "lightning"),
    "accelerate_loop": "accelerate",
    "transformers_trainer": "transformers",
    "jax_arrays": "jax",
    "horovod_torch": "horovod",
}
WITHIN_S = 60.0  # from the submission to the end of a run with a mistake


@contextmanager
def slurm(place: Path) -> Iterator[dict[str, str]]:
    folder = place / "cluster"
    try:
        cluster = up(folder)
        yield {**_environ(), **cluster.environment, "SBTRAIN_HOME": str(place / "home")}
    finally:
        down(folder)


def first_rows(environ: Mapping[str, str], place: Path, only: str) -> list[BenchRow]:
    rows = []
    for per_node in (1, 2):
        wrong = tried = 0
        for script in _scripts(only):
            words = ["-N2", *([f"--ntasks-per-node={per_node}"] if per_node > 1 else [])]
            found = try_script(environ, place / f"{script.stem}-{per_node}", script, *words)
            tried += 1
            why = found.wrong(nodes=2, per_node=per_node)
            wrong += bool(why)
            said = f"wrong: {why}" if why else "right"
            _say(f"{script.stem}, {per_node} a node: {said} ({found.seconds:.0f} s)")
        rows.append(
            BenchRow(
                what=f"scripts that do not come up right, 2 nodes, {per_node} a node",
                yardstick=f"{tried} scripts",
                value=wrong + _missing(only),
                bar=0,
            )
        )
    return rows


def twin_rows(environ: Mapping[str, str], place: Path, only: str) -> list[BenchRow]:
    silent = false = tried = 0
    slowest_s = 0.0
    for number, twin in enumerate(TWINS):
        if (only and twin.script != only) or not _installed(twin.script):
            continue
        script = place / f"twin-{number}" / f"{twin.script}.py"
        script.parent.mkdir(parents=True)
        script.write_text(twin.mistake + (SCRIPTS / f"{twin.script}.py").read_text())
        found = try_script(environ, script.parent, script, "-N2")
        tried += 1
        complete = found.state == "COMPLETED" or "training is complete" in found.output
        told = re.search(twin.reason, found.output) is not None
        slowest_s = max(slowest_s, found.seconds)
        silent += not told
        false += complete
        _say(
            f"{twin.script}, {twin.what}: {found.state or found.refused} after "
            f"{found.seconds:.0f} s, {'told' if told else 'NOT told: ' + found.output[-900:]}"
        )
    yard = f"{tried} twins"
    return [
        BenchRow(what="mistakes that are not told", yardstick=yard, value=silent, bar=0),
        BenchRow(what="slowest end, s", yardstick=yard, value=slowest_s, bar=WITHIN_S),
        BenchRow(what="mistakes that are called complete", yardstick=yard, value=false, bar=0),
    ]


def _scripts(only: str) -> list[Path]:
    found = sorted(SCRIPTS.glob("*.py"))
    return [one for one in found if only in ("", one.stem) and _installed(one.stem)]


def _missing(only: str) -> int:
    found = SCRIPTS.glob("*.py")
    missing = [one.stem for one in found if only in ("", one.stem) and not _installed(one.stem)]
    for name in missing:
        _say(f"skipped: {name}: {NEEDS[name]} is not installed")
    return len(missing)


def _installed(script: str) -> bool:
    return find_spec(NEEDS.get(script, "numpy")) is not None


def _environ() -> dict[str, str]:
    import os

    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    return {**kept, "VIRTUAL_ENV": str(Path(sys.executable).parents[1])}


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


Part = Callable[[Mapping[str, str], Path, str], list[BenchRow]]
PARTS: Mapping[str, Part] = {
    "first": first_rows,
    "twins": twin_rows,
    "loss": loss_rows,
    "ports": port_rows,
    "times": times_rows,
    "servers": server_rows,
    "overhead": overhead_rows,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--script", default="", help="this one of launch_scripts alone")
    asked = parser.parse_args()
    parts = [PARTS[asked.only]] if asked.only else list(PARTS.values())
    with tempfile.TemporaryDirectory(prefix="bench-launch-") as folder:
        place = Path(folder)
        with slurm(place) as environ:
            rows = [row for part in parts for row in part(environ, place, asked.script)]
    return finish("launch", rows)


if __name__ == "__main__":
    sys.exit(main())
