"""Accuracy of every model on public measurements, held against its bar.

    python benchmarks/accuracy.py [--data ../shared/data] [--only cmdare] [--json FILE]

Every check fits on a part of the data, through the scorers of `sbtrain_perf.score`, and is
scored on the rest. Prints one table, writes it as JSON, and exits with 1 where a bar is
missed. A module of accuracy_checks/ with `checks(data, scratch)` is found by itself.
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
NOT_CHECKS = {"checking"}


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
        {"what": line.what, "value": line.value, "bar": line.bar, "met": line.met}
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
    rows = [("check", "n", "yardsticks", "value", "bar", "in 90 %", "met")]
    for line in lines:
        covered = "-" if line.coverage90 is None else f"{100 * line.coverage90:.0f}"
        sign = ">=" if line.at_least else "<="
        rows.append(
            (
                line.what,
                str(line.n) if line.n else "-",
                "; ".join(filter(None, (line.yardstick, line.note))) or "-",
                f"{line.value:.1f}",
                "-" if line.bar is None else f"{sign} {line.bar:g}",
                covered + ("" if line.covered else " (!)"),
                "-" if line.bar is None else "yes" if line.met else "NO",
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    text = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) + " |"
        for r in rows
    ]
    text.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(text)


if __name__ == "__main__":
    sys.exit(main())
