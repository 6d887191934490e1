"""Whether `sbtrain` is sbatch where nothing asks for training: the same calls by both on a
private Slurm of its own, and every difference counted.

    benchmarks/fidelity.py [--only PART] [--clients PYTHON] [--calls N] [--seed S] [--first K]

Prints a table, writes build/bench-fidelity.json, exits 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from bench_table import BenchRow, finish
from fidelity_checks.both import Pair, do_both, look
from fidelity_checks.calls import random_call
from fidelity_checks.clients import compare_clients
from fidelity_checks.cost import cost_rows
from fidelity_checks.idioms import EXACT, IDIOMS
from fidelity_checks.ordinary import NESTED, ORDINARY
from fidelity_checks.place import Place, place
from fidelity_checks.trials import Trial, compare

BATCH = 40
PARTS = ("cost", "idioms", "ordinary", "nested", "random")


def trial_row(here: Place, what: str, trials: list[Trial], ways: tuple[str, ...]) -> BenchRow:
    differing = compare(here, trials, ways)
    return BenchRow(
        what=f"{what} that differ",
        yardstick=f"{len(trials)} with sbatch; as {', '.join(ways)}",
        value=differing,
        bar=0,
    )


def random_rows(here: Place, *, calls: int, seed: int, first: int) -> list[BenchRow]:
    here.partitions("DOWN")
    differing = accepted = one_alone = 0
    for begin in range(first, first + calls, BATCH):
        pairs = [
            do_both(here, random_call(seed, number))
            for number in range(begin, min(begin + BATCH, first + calls))
        ]
        look(here, pairs)
        for pair in pairs:
            accepted += bool(pair.sbatch.job_id)
            one_alone += bool(pair.sbatch.job_id) != bool(pair.sbtrain.job_id)
            if pair.differences:
                differing += 1
                tell(pair)
        done = begin + len(pairs) - first
        sys.stderr.write(f"{done} calls, sbatch took {accepted}, {differing} differ\n")
    here.partitions("UP")
    taken = f"{calls} calls, of which sbatch took {accepted}"
    return [
        BenchRow(what="random calls that differ", yardstick=taken, value=differing, bar=0),
        BenchRow(what="of them taken by one alone", yardstick="-", value=one_alone, bar=0),
    ]


def tell(pair: Pair) -> None:
    print(f"call {pair.call.number} differs: {pair.call!r:.1500}")
    for line in pair.differences:
        print(f"    {line}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description="sbtrain against sbatch")
    parser.add_argument("--calls", type=int, default=1500, help="random calls [1500]")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part alone")
    parser.add_argument(
        "--clients", type=Path, help="an interpreter with programs that submit by sbatch"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first random call")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the cluster is ended
    parts = args.only or (() if args.clients else PARTS)
    rows = list[BenchRow]()
    with place() as here:
        if args.clients:
            tried, differing = compare_clients(here, args.clients.absolute())
            what = "programs that submit by sbatch that differ"
            rows.append(BenchRow(what=what, yardstick=f"{tried} tried", value=differing, bar=0))
        if "cost" in parts:
            rows += cost_rows(here)
        if "idioms" in parts:
            rows.append(trial_row(here, "shell idioms", IDIOMS, ("alias", "file")))
            rows.append(trial_row(here, "some idioms", EXACT, ("link", "copy")))
        if "ordinary" in parts:
            rows.append(trial_row(here, "scripts that run", ORDINARY, ("alias",)))
        if "nested" in parts:  # an alias does not reach into a job
            rows.append(trial_row(here, "calls from inside a job", NESTED, ("file",)))
        if "random" in parts:
            rows += random_rows(here, calls=args.calls, seed=args.seed, first=args.first)
    return finish("fidelity", rows)


if __name__ == "__main__":
    sys.exit(main())
