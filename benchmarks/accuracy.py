"""Accuracy of every model on public measurements, held against its bar.

    python benchmarks/accuracy.py [--data ../shared/data] [--only cmdare] [--json FILE]

Every check fits on a part of the data and is scored on the rest, twice: through the scorers of
`sbtrain_perf.score` and `sbtrain_perf.regret`, of which bars are asked, and through the
planner's own functions (refit and plan), which plan runs. Prints one table, writes it as JSON,
and exits with 1 where a bar is missed. A module of accuracy_checks/ with
`checks(data, scratch)` is found by itself.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import accuracy_checks
from accuracy_checks.checking import Check

ROOT = Path(__file__).resolve().parent.parent
NOT_CHECKS = {"checking", "replay"}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--only", action="append", help="a module of accuracy_checks")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "bench-accuracy.json")
    arguments = parser.parse_args(argv)
    if not arguments.data.is_dir():
        print(f"no public data at {arguments.data}: give it with --data", file=sys.stderr)
        return 2
    found = [module.name for module in pkgutil.iter_modules(accuracy_checks.__path__)]
    lines: list[Check] = []
    with tempfile.TemporaryDirectory(prefix="accuracy-") as scratch:
        for name in arguments.only or sorted(set(found) - NOT_CHECKS):
            started = time.monotonic()
            module = importlib.import_module(f"accuracy_checks.{name}")
            lines += module.checks(arguments.data, Path(scratch) / name)
            seconds = time.monotonic() - started
            print(f"{name}: {seconds:.0f} s", file=sys.stderr)
    print(table(lines))
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    rows = [row for line in lines for row in _rows(line)]
    arguments.json.write_text(json.dumps(rows, indent=2) + "\n")
    return 0 if all(line.met and line.covered for line in lines) else 1


def _rows(line: Check) -> list[dict[str, object]]:
    """One row for the error, and one for the coverage where the interval is held to it."""
    rows: list[dict[str, object]] = [
        {
            "what": line.what,
            "value": line.value,
            "bar": line.bar,
            "met": line.met,
            "planner": line.planner.value,
            "planner_coverage90": line.planner.coverage90,
            "planner_n": line.planner.n,
            "planner_note": line.planner.note,
        }
    ]
    if line.coverage90 is not None:
        bar = "0.85 to 0.95" if line.check_coverage else None
        rows.append(
            {
                "what": f"{line.what}: share inside the 90 % interval",
                "value": line.coverage90,
                "bar": bar,
                "met": line.covered,
            }
        )
    return rows


def table(lines: Sequence[Check]) -> str:
    """GitHub-flavoured Markdown."""
    head = ("check", "n", "yardsticks", "scorer", "bar", "in 90 %", "met")
    rows = [(*head, "planner", "in 90 %", "of the planner")]
    for line in lines:
        covered = _per_cent(line.coverage90)
        own = line.planner
        sign = ">=" if line.at_least else "<="
        some = f"{own.n} rows" if own.n not in (0, line.n) else ""
        rows.append(
            (
                line.what,
                str(line.n) if line.n else "-",
                "; ".join(filter(None, (line.yardstick, line.note))) or "-",
                _one_digit(line.value),
                "-" if line.bar is None else f"{sign} {line.bar:g}",
                covered + ("" if line.covered else " (!)"),
                "-" if line.bar is None else "yes" if line.met else "NO",
                _one_digit(own.value),
                _per_cent(own.coverage90),
                "; ".join(filter(None, (some, own.note))) or "-",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    text = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |"
        for r in rows
    ]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


def _one_digit(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _per_cent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f}"


if __name__ == "__main__":
    sys.exit(main())
