"""Whether `sbtrain` is sbatch where nothing asks for training: the same calls by both on a
private Slurm of its own, and every difference counted.

    benchmarks/fidelity.py [--only PART] [--clients PYTHON] [--calls N] [--script-calls N]
                           [--hostlists N] [--values N] [--away N] [--away-seconds S]
                           [--seed S] [--first K]

Prints a table, writes build/bench-fidelity.json, exits 1 where a bar is missed.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from bench_table import BenchRow, finish
from fidelity_checks.away import count_wrong
from fidelity_checks.both import Pair, do_both, look
from fidelity_checks.calls import Call, random_call
from fidelity_checks.clients import compare_clients
from fidelity_checks.cost import cost_rows
from fidelity_checks.hostlists import compare_hostlists
from fidelity_checks.idioms import EXACT, IDIOMS
from fidelity_checks.ordinary import NESTED, ORDINARY
from fidelity_checks.place import Place, place
from fidelity_checks.script_way import do_both_script
from fidelity_checks.trials import Trial, compare
from fidelity_checks.values import compare_values

BATCH = 40
PARTS = (
    *("cost", "idioms", "ordinary", "nested", "random", "script", "hostlists", "values"),
    "away",
)


def trial_row(here: Place, what: str, trials: list[Trial], ways: tuple[str, ...]) -> BenchRow:
    differing = compare(here, trials, ways)
    return BenchRow(
        what=f"{what} that differ",
        yardstick=f"{len(trials)} with sbatch; as {', '.join(ways)}",
        value=differing,
        bar=0,
    )


def random_rows(
    here: Place,
    do: Callable[[Place, Call], Pair],
    what: str,
    *,
    calls: int,
    seed: int,
    first: int,
    planned: bool = False,
) -> list[BenchRow]:
    here.partitions("DOWN")
    differing = accepted = one_alone = 0
    for begin in range(first, first + calls, BATCH):
        pairs = [
            do(here, random_call(seed, number, planned=planned))
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
        BenchRow(what=f"{what} that differ", yardstick=taken, value=differing, bar=0),
        BenchRow(what="of them taken by one alone", yardstick="-", value=one_alone, bar=0),
    ]


def read_row(what: str, by: str, differing: int, tried: int) -> BenchRow:
    yardstick = f"{tried} by {by}"
    return BenchRow(what=f"{what} that differ", yardstick=yardstick, value=differing, bar=0)


def tell(pair: Pair) -> None:
    print(f"call {pair.call.number} differs: {pair.call!r:.1500}")
    for line in pair.differences:
        print(f"    {line}")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description="sbtrain against sbatch")
    parser.add_argument("--calls", type=int, default=1500, help="random calls [1500]")
    parser.add_argument(
        "--script-calls", type=int, default=300, help="those with --train-launch script [300]"
    )
    parser.add_argument("--hostlists", type=int, default=3000, help="host lists [3000]")
    parser.add_argument("--values", type=int, default=1000, help="values of options [1000]")
    parser.add_argument("--away", type=int, default=6, help="of each way to run a script [6]")
    parser.add_argument("--away-seconds", type=float, default=4.0, help="[4]")
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
    numbers = {"seed": args.seed, "first": args.first}
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
            rows += random_rows(here, do_both, "random calls", calls=args.calls, **numbers)
        if "script" in parts:
            rows += random_rows(
                here.that_plans(),
                do_both_script,
                "random calls in the way `script`",
                calls=args.script_calls,
                planned=True,
                **numbers,
            )
        if "hostlists" in parts:
            found = compare_hostlists(here, count=args.hostlists, seed=args.seed)
            rows.append(read_row("host lists", "scontrol", found, args.hostlists))
        if "values" in parts:
            found = compare_values(here, count=args.values, seed=args.seed)
            rows.append(read_row("values of options", "sbatch", found, args.values))
        if "away" in parts:
            wrong = count_wrong(
                here.that_plans(), each=args.away, seed=args.seed, away_s=args.away_seconds
            )
            rows.append(
                BenchRow(
                    what="submissions without slurmctld that leave not one job",
                    yardstick=f"{args.away} each as none, script, ranks; {args.away_seconds} s",
                    value=wrong,
                    bar=0,
                )
            )
    return finish("fidelity", rows)


if __name__ == "__main__":
    sys.exit(main())
