"""``python -m sbtrain_perf.regret [--data DIR] [--few 1,2,4] [--json]``.

Fits on few points of each public curve, lets the planner's rule choose among all measured
configurations, and compares with the measured best.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.regret.choosing import (
    OBJECTIVES,
    Choice,
    Curve,
    Summary,
    choices_on,
    summarise,
)
from sbtrain_perf.regret.curves import (
    FEW_WORKERS,
    SERVER_FILES,
    LeftOut,
    Looked,
    look,
    measured_workers,
)
from sbtrain_perf.score import pollux
from sbtrain_perf.score.report import aligned
from sbtrain_perf.score.tables import ScoreError

SHOWN = 5  # of what was left out
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
        looked = look(arguments.data, few=_few(arguments.data, arguments.few))
        curves = [found for found in looked if isinstance(found, Curve)]
        if not curves:
            raise ScoreError(
                f"{arguments.data} has no curves: {_why_none(looked)}",
                hint=f"it needs {', '.join(SERVER_FILES.values())} or {pollux.FILE}",
            )
        choices = [c for o in OBJECTIVES for curve in curves for c in choices_on(curve, o)]
    except SbtrainError as error:
        sys.stderr.write(f"sbtrain_perf.regret: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"hint: {error.hint}\n")
        return error.exit_code
    summaries = summarise(choices)
    render = _to_json if arguments.json else _table
    sys.stdout.write(render(choices, summaries))
    return 0


def _few(data: Path, asked: tuple[int, ...] | None) -> tuple[int, ...]:
    """What was asked for, of which a run must be there where there are runs; or the usual."""
    measured = measured_workers(data) if asked else []
    if asked and measured and not set(asked) & set(measured):
        raise ScoreError(
            f"--few: no run has {' or '.join(map(str, asked))} workers of one kind",
            hint=f"measured are {', '.join(map(str, measured))}",
        )
    return asked or FEW_WORKERS


def _why_none(looked: Looked) -> str:
    """What was left out and why, by the first few of it."""
    left_out = [f"{o.source} {o.name}: {o.why}" for o in looked if isinstance(o, LeftOut)]
    if not left_out:
        return "its files have no rows"
    more = len(left_out) - SHOWN
    return "; ".join([*left_out[:SHOWN], *([f"and {more} more"] if more > 0 else [])])


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
        metavar="N,N",
        help="workers that fits of parameter servers see (default: 1,2,4)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,6}", part) and int(part) for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not numbers from 1, like 1,2,4")
    return tuple(map(int, parts))


if __name__ == "__main__":
    sys.exit(main())
