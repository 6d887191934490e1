"""``python -m sbtrain_perf.regret [--data DIR] [--few 1,2,4] [--json]``.

Fits on few points of each public curve, lets the planner's rule choose among all measured
configurations, and compares with the measured best.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.regret.choosing import OBJECTIVES, Choice, Summary, judge, summarise
from sbtrain_perf.regret.curves import FEW_WORKERS, all_curves
from sbtrain_perf.score.report import aligned
from sbtrain_perf.score.tables import ScoreError

COLUMNS = (
    "source",
    "objective",
    "rule",
    "curves",
    "within 5 %",
    "mean regret %",
    "worst %",
    "server choices",
    "right %",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, or the error's own (2 for a wrong command line)."""
    arguments = _parser().parse_args(argv)
    try:
        if not arguments.data.is_dir():
            raise ScoreError(
                f"--data: {arguments.data} is not a folder",
                hint="give a folder laid out like the public data: cmdare/, pollux/, ...",
            )
        curves = all_curves(arguments.data, few=arguments.few)
        if not curves:
            raise ScoreError(
                f"{arguments.data} has no curves",
                hint="it needs cmdare/speed_cluster.csv or pollux/step_times.csv",
            )
        choices = [c for o in OBJECTIVES for curve in curves for c in judge(curve, o)]
    except SbtrainError as error:
        sys.stderr.write(f"sbtrain_perf.regret: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"hint: {error.hint}\n")
        return error.exit_code
    summaries = summarise(choices)
    render = _to_json if arguments.json else _table
    sys.stdout.write(render(choices, summaries))
    return 0


def _to_json(choices: Sequence[Choice], summaries: Sequence[Summary]) -> str:
    document = {
        "summaries": [dataclasses.asdict(summary) for summary in summaries],
        "choices": [dataclasses.asdict(choice) for choice in choices],
    }
    return json.dumps(document, allow_nan=False) + "\n"


def _table(choices: Sequence[Choice], summaries: Sequence[Summary]) -> str:
    """One line a source, objective and rule; then our choices that gave away over 5 %."""
    lines = [list(COLUMNS), *map(_cells, summaries)]
    text = aligned(lines, left=3)
    missed = [c for c in choices if c.rule == "ours" and c.regret > 0.05]
    text += [
        f"{c.objective}: {c.source} {c.name}: chose {c.chosen}, best was {c.best} "
        f"({100 * c.regret:.1f} % given away)"
        for c in sorted(missed, key=lambda c: (c.objective != OBJECTIVES[0], -c.regret))
    ]
    return "\n".join(text) + "\n"


def _cells(summary: Summary) -> list[str]:
    right = summary.right_servers
    return [
        summary.source,
        summary.objective,
        summary.rule,
        str(summary.curves),
        f"{100 * summary.within_5:.1f}",
        f"{100 * summary.mean_regret:.2f}",
        f"{100 * summary.worst_regret:.1f}",
        str(summary.servers),
        "-" if right is None else f"{100 * right:.1f}",
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sbtrain_perf.regret",
        description="What the planner's choices give away on public measurements.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--data",
        type=Path,
        default=Path("../shared/data"),
        metavar="DIR",
        help="laid out like the public data (default: %(default)s)",
    )
    parser.add_argument(
        "--few",
        type=_numbers,
        default=FEW_WORKERS,
        metavar="N,N",
        help="workers that fits of parameter servers see (default: 1,2,4)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not numbers, like 1,2,4") from None


if __name__ == "__main__":
    sys.exit(main())
