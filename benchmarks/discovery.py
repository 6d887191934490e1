"""Whether sbtrain is at home on a Slurm that nobody has configured: thirteen private Slurms of
different shapes without any file, names of GPUs, site files that are wrong, what status says of
runs that have ended, and what is learnt where nothing was known.

    benchmarks/discovery.py [--only PART] [--shape N]

Prints a table, writes build/bench-discovery.json, exits 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from bench_table import BenchRow, finish
from discovery_checks.calls import (
    SBTRAIN,
    TRAINS,
    call,
    cpu_ms,
    ended,
    questions,
    shown_site,
    wrong_without_a_file,
)
from discovery_checks.ends import ends_rows
from discovery_checks.gpu_forms import gpu_rows
from discovery_checks.learning import learning_rows
from discovery_checks.shapes import SHAPES, running

from sbtrain.cluster.errors import ClusterError

TESTS = Path(__file__).resolve().parents[1] / "tests"
ROUNDS = 15


def shape_rows(which: int | None) -> list[BenchRow]:
    wrong = skipped = 0
    cold, kept = 0, 0
    shapes = SHAPES if which is None else SHAPES[which : which + 1]
    for shape in shapes:
        try:
            with running(shape) as environ, tempfile.TemporaryDirectory() as place:
                folder = Path(place)
                said = list(wrong_without_a_file(environ, folder))
                first = sum(
                    questions({**environ, "SBTRAIN_HOME": f"{place}/new"}, folder).values()
                )
                again = sum(questions(environ, folder).values())
        except ClusterError as error:
            skipped += 1
            sys.stderr.write(f"skipped: {shape.what}: {error.message}\n")
            continue
        cold, kept = max(cold, first), max(kept, again)
        wrong += bool(said)
        for line in said:
            sys.stderr.write(f"wrong: {shape.what}: {line}\n")
        sys.stderr.write(f"{shape.what}: {'wrong' if said else 'works'}; {first} questions\n")
    of = f"{len(shapes)} Slurms without any file"
    return [
        BenchRow(
            what="shapes of Slurm on which something fails", yardstick=of, value=wrong, bar=0
        ),
        BenchRow(what="of them that could not be tried", yardstick=of, value=skipped, bar=0),
        BenchRow(what="questions of a first call, at most", yardstick=of, value=cold, bar=3),
        BenchRow(what="questions of a later call", yardstick=of, value=kept, bar=0),
    ]


def cpu_rows() -> list[BenchRow]:
    """What a start costs whose cluster was discovered, beside one with a file that says all."""
    with running(SHAPES[0]) as environ, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "train.py").write_text(TRAINS)
        (folder / "site.toml").write_text(shown_site(environ, folder))
        named = f"--train-site={folder}/site.toml"
        cpu_ms(environ, folder)
        rounds = [
            (cpu_ms(environ, folder), cpu_ms(environ, folder, named)) for _ in range(ROUNDS)
        ]
    filed = statistics.median(ms for _, ms in rounds)
    more = statistics.median(found - named for found, named in rounds)
    return [
        BenchRow(
            what="ms of CPU more than with a site file",
            yardstick=f"{filed:.0f} ms with it, median of {ROUNDS}",
            value=more,
            bar=10,
        )
    ]


def stale_rows() -> list[BenchRow]:
    """Site files that are wrong about the cluster: warned of, and the job runs."""
    from discovery_checks.shapes import Shape

    sys.path.append(str(TESTS))
    from stale_sites import PARTITIONS, STALE_SITES

    shape = Shape(
        what="as the site files describe",
        nodes={"g": "k80:2"},
        partitions=PARTITIONS,
    )
    wrong = 0
    with running(shape) as environ, tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "train.py").write_text(TRAINS)
        for case in STALE_SITES:
            (folder / "site.toml").write_text(case.text)
            said = call(
                environ, folder, SBTRAIN, "--parsable", f"--train-site={folder}/site.toml",
                "--train-steps=5", "-o", "train.out", "train.py",
            )  # fmt: skip
            state = "refused"
            if said.returncode == 0:
                state = ended(environ, folder, said.stdout.strip())
            if state != "COMPLETED" or case.names not in said.stderr:
                wrong += 1
                sys.stderr.write(f"wrong: {case.what}: {state}; {said.stderr}\n")
    return [
        BenchRow(
            what="wrong site files not warned of, or whose job fails",
            yardstick=f"{len(STALE_SITES)} written by hand",
            value=wrong,
            bar=0,
        )
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parts: Mapping[str, Callable[[], list[BenchRow]]] = {
        "shapes": lambda: shape_rows(args.shape),
        "cpu": cpu_rows,
        "gpus": gpu_rows,
        "stale": stale_rows,
        "ends": ends_rows,
        "learning": learning_rows,
    }
    parser.add_argument("--only", choices=parts, help="one part alone")
    parser.add_argument("--shape", type=int, help="one shape alone, from 0")
    args = parser.parse_args()
    rows = [row for name in parts if args.only in (None, name) for row in parts[name]()]
    return finish("discovery", rows)


if __name__ == "__main__":
    sys.exit(main())
