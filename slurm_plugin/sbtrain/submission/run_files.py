"""The files of a run as the login node writes them: plan, job script, a copy of the script."""

from __future__ import annotations

import dataclasses
import secrets
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import sbtrain
import sbtrain_jobs
import sbtrain_perf
import sbtrain_staging
from sbtrain.errors import HomeError
from sbtrain.options.script import Script
from sbtrain_jobs.run_folder import RunFolder
from sbtrain_perf.codec import plan_to_json
from sbtrain_perf.request import Plan
from sbtrain_staging.publish import publish_bytes


def new_run_id(workload: str, now: datetime) -> str:
    """Unique, sortable, and fit for a folder and for Slurm's comment."""
    return f"{workload}-{now.astimezone(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def runs_folder(cwd: Path, environ: Mapping[str, str]) -> Path:
    """$SBTRAIN_RUNS, else .sbtrain/runs in the submit folder: all nodes must see it."""
    return cwd / (environ.get("SBTRAIN_RUNS") or ".sbtrain/runs")


def placed(plan: Plan, script: Script, *, now: datetime) -> Plan:
    """The plan, running the copy of the script that write_run_folder makes."""
    return dataclasses.replace(
        plan,
        script=str(RunFolder.of(plan).script(script.name)),
        script_dir=str(script.folder),
        submitted_at=now.astimezone(UTC).isoformat(timespec="milliseconds"),
    )


def write_run_folder(plan: Plan, *, script: Script, job_text: str) -> Path:
    """Make the run's folder; returns the job script's path.

    A run that is requeued days later runs this copy, whatever became of the original.

    Raises:
        HomeError: it cannot be written; nothing of it is left then.
    """
    run_folder = RunFolder.of(plan)
    folder = run_folder.path
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        copy = Path(plan.script)
        copy.parent.mkdir(mode=0o700)
        publish_bytes(copy, script.content, mode=0o700)
        run_folder.python.mkdir(mode=0o700)
        for package in (sbtrain, sbtrain_jobs, sbtrain_perf, sbtrain_staging):
            (found,) = package.__path__
            (run_folder.python / package.__name__).symlink_to(found)
        publish_bytes(run_folder.plan, plan_to_json(plan).encode())
        publish_bytes(run_folder.job_script, job_text.encode("utf-8", errors="surrogateescape"))
    except BaseException as error:
        remove_run_folder(plan)
        if isinstance(error, OSError):
            raise _unwritable(folder, error) from error
        raise
    return run_folder.job_script


def remove_run_folder(plan: Plan) -> None:
    shutil.rmtree(plan.run_dir, ignore_errors=True)


def _unwritable(folder: Path, error: OSError) -> HomeError:
    return HomeError(
        f"cannot write the run folder {folder}: {error.strerror}",
        hint="submit from a folder that all nodes share and you may write, "
        "or set SBTRAIN_RUNS to one",
    )
