"""``python -m sbtrain_perf.score DATASET --fit DIR --score DIR [--json]``.

Fits every model on the rows under --fit, predicts the rows under --score, and prints the
error of each. No file outside the two folders is read. A data set DATASET is the module
sbtrain_perf.score.<DATASET, dashes as underscores> with NAME and score().
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from sbtrain_perf.errors import SbtrainError, needs_extra
from sbtrain_perf.score import report
from sbtrain_perf.score.scoring import DataSetScorer
from sbtrain_perf.score.tables import ScoreError

DATASETS = (
    "cmdare-speed",
    "cmdare-checkpoint",
    "cmdare-cluster",
    "cmdare-lifetime",
    "tdl",
    "pollux",
    "gavel",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code 0, or the error's own (2 for a wrong command line)."""
    arguments = _parser().parse_args(argv)
    try:
        for option, folder in (("--fit", arguments.fit), ("--score", arguments.score)):
            if not folder.is_dir():
                raise ScoreError(
                    f"{option}: {folder} is not a folder",
                    hint="give a folder laid out like the public data: cmdare/, tdl/, ...",
                )
        scores = scorer(arguments.dataset).score(arguments.fit, arguments.score)
        if not scores:
            raise ScoreError(
                f"--score: {arguments.score} has no rows of {arguments.dataset}",
                hint="--score must hold the data set's own files",
            )
    except SbtrainError as error:
        sys.stderr.write(f"sbtrain_perf.score: {error.message}\n")
        if error.hint:
            sys.stderr.write(f"hint: {error.hint}\n")
        return error.exit_code
    render = report.to_json if arguments.json else report.table
    sys.stdout.write(render(arguments.dataset, scores))
    return 0


def scorer(dataset: str) -> DataSetScorer:
    """The data set's module.

    Raises:
        ScoreError: this build has none.
        MissingExtraError: a package that it needs is not installed.
    """
    name = f"sbtrain_perf.score.{dataset.replace('-', '_')}"
    if importlib.util.find_spec(name) is None:
        raise ScoreError(f"no scorer for {dataset} in this build", hint="choose another")
    with needs_extra("perf", purpose=f"scoring {dataset}"):
        return cast("DataSetScorer", importlib.import_module(name))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m sbtrain_perf.score",
        description="Fit the models on one folder and score them on another.",
        allow_abbrev=False,
    )
    parser.add_argument("dataset", choices=DATASETS, metavar="DATASET", help="%(choices)s")
    parser.add_argument("--fit", required=True, type=Path, metavar="DIR", help="training rows")
    parser.add_argument("--score", required=True, type=Path, metavar="DIR", help="scored rows")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


if __name__ == "__main__":
    sys.exit(main())
