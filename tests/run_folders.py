"""Run folders as the login node and the supervisor leave them, for tests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from plans import example_plan
from sbtrain.runs.run_list import ListedRun
from sbtrain_jobs.record.ledger import Ledger, LedgerEntry
from sbtrain_jobs.run_folder import RunFolder
from sbtrain_perf.codec import plan_to_json
from sbtrain_staging.publish import TEMPORARY_MARK

PAGE = Path(__file__).resolve().parents[1] / "docs/run-folder.md"
_PLACE = re.compile(r"ROLE|INDEX|NAME|X{8}|\b[NS]\b")  # what stands for any text

BEGAN = "2026-11-30T00:00:00+00:00"
ENDED = "2026-11-30T00:05:00+00:00"


def make_run(place: Path, job_id: str, *, task: str = "", **changes: object) -> ListedRun:
    """A run's folder as the login node leaves it."""
    run_id = f"digits-{job_id}"
    folder = place / run_id / (f"task-{task}" if task else "")
    folder.mkdir(parents=True)
    changes.setdefault("checkpoint_dir", str(folder / "checkpoints"))
    plan = example_plan(run_id=run_id, run_dir=str(folder), submitted_at=BEGAN, **changes)
    (folder / "plan.json").write_text(plan_to_json(plan))
    return ListedRun(
        run_id=run_id,
        job_id=job_id,
        run_dir=str(place / run_id),
        workload="train_digits",
        submitted=BEGAN,
    )


def tell(run: ListedRun, *entries: LedgerEntry) -> None:
    for entry in entries:
        Ledger(RunFolder(path=Path(run.run_dir)).ledger).append(entry)


def started(attempt: int, *, job_id: str = "7") -> LedgerEntry:
    return LedgerEntry(
        event="started", attempt=attempt, at=BEGAN, job_id=job_id, nodes="c[1-2]"
    )


def ended(attempt: int, cause: str, exit_code: int = 0) -> LedgerEntry:
    return LedgerEntry(
        event="ended", attempt=attempt, at=ENDED, cause=cause, exit_code=exit_code
    )


def unknown_files(paths: Iterable[Path]) -> list[str]:
    """Those of the files below a run folder that docs/run-folder.md has no row for."""
    page = PAGE.read_text()
    rows = re.findall(r"^\| `([^`]+)` \|", page.partition("\n## ")[0], re.MULTILINE)
    forms = [_PLACE.sub("[^/]+", re.escape(row).replace(r"\.\.\.", ".+")) for row in rows]
    known = re.compile("|".join(form.replace("FILES", ".+") for form in forms))
    names = map(str, paths)
    return [name for name in names if TEMPORARY_MARK not in name and not known.fullmatch(name)]
