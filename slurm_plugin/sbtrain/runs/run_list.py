"""The user's list of runs, `runs.jsonl`: which run is which job, and where its folder is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from sbtrain.errors import HomeError
from sbtrain.home import RUNS_NAME, home, made_home
from sbtrain_jobs.record.json_lines import append_line, read_lines
from sbtrain_jobs.run_folder import RunFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRun:
    """One submission. job_id is what sbatch printed; cluster its name where sbatch told;
    submitted: ISO 8601, UTC; submit_dir: the folder in which the job begins."""

    run_id: str
    job_id: str
    run_dir: str
    workload: str
    submitted: str
    cluster: str | None = None
    submit_dir: str = ""

    @property
    def folder(self) -> RunFolder:
        return RunFolder(path=Path(self.run_dir))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunList:
    """runs: the oldest first. left_out: how many lines of the list at path are no runs."""

    path: Path
    runs: tuple[ListedRun, ...] = ()
    left_out: int = 0


def append_run(run: ListedRun, environ: Mapping[str, str]) -> None:
    """Raises HomeError when it cannot be written."""
    path = made_home(environ) / RUNS_NAME
    try:
        append_line(path, asdict(run))
    except OSError as error:
        raise HomeError(
            f"cannot write {path}: {error.strerror}",
            hint="make room there, or set SBTRAIN_HOME to another folder",
        ) from error


def read_runs(environ: Mapping[str, str]) -> RunList:
    """Every run; none where nothing was submitted yet.

    Raises:
        HomeError: the list is there and cannot be read.
    """
    path = home(environ) / RUNS_NAME
    try:
        runs, left_out = read_lines(path, ListedRun)
    except OSError as error:
        raise HomeError(
            f"cannot read {path}: {error.strerror}", hint="it should belong to you, mode 600"
        ) from error
    return RunList(path=path, runs=runs, left_out=left_out)
