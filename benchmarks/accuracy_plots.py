"""Draws predicted against measured for every data set, into docs/accuracy/.

    python benchmarks/accuracy_plots.py [--data ../shared/data] [--folder docs/accuracy]

The points are those of the accuracy checks: rows that the fit has not seen. Needs matplotlib.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import accuracy_checks
from accuracy_checks.checking import Plot

ROOT = Path(__file__).resolve().parent.parent


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "accuracy")
    parser.add_argument("--only", action="append", help="a module of accuracy_checks")
    arguments = parser.parse_args(argv)
    found = [module.name for module in pkgutil.iter_modules(accuracy_checks.__path__)]
    with tempfile.TemporaryDirectory(prefix="accuracy-") as scratch:
        for name in arguments.only or sorted(found):
            module = importlib.import_module(f"accuracy_checks.{name}")
            if hasattr(module, "plots"):
                for plot in module.plots(arguments.data, Path(scratch) / name):
                    print(draw(plot, arguments.folder))
    return 0


def draw(plot: Plot, folder: Path) -> Path:
    """One SVG: both axes logarithmic, the diagonal, and each point's 90 % interval."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = plot.name  # the same points give the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(5.2, 4.6))
    every = [point for points in plot.series.values() for point in points]
    low = 0.9 * min(min(p.measured, p.predicted) for p in every)
    high = 1.1 * max(max(p.measured, p.predicted) for p in every)
    axes.plot([low, high], [low, high], color="0.6", linewidth=0.8)
    for label, points in plot.series.items():
        below = [p.predicted - (p.predicted if p.low is None else p.low) for p in points]
        above = [(p.predicted if p.high is None else p.high) - p.predicted for p in points]
        axes.errorbar(
            [p.measured for p in points],
            [p.predicted for p in points],
            yerr=[below, above],
            fmt="o",
            markersize=3,
            elinewidth=0.5,
            alpha=0.7,
            label=label,
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(f"measured ({plot.unit})")
    axes.set_ylabel(f"predicted with 90 % interval ({plot.unit})")
    axes.set_title(plot.title, fontsize=10)
    axes.legend(fontsize=7, frameon=False)
    figure.tight_layout()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{plot.name}.svg"
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


if __name__ == "__main__":
    sys.exit(main())
