"""The folder of a run as the login node makes it: plan, job script, a copy of the script."""

from __future__ import annotations

import dataclasses
import secrets
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from sbtrain.errors import HomeError
from sbtrain.options.script import Script
from sbtrain_perf.codec import plan_to_json
from sbtrain_perf.request import Plan
from sbtrain_staging.publish import publish_bytes

PLAN_NAME = "plan.json"
JOB_SCRIPT_NAME = "job.sh"


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
        script=str(Path(plan.run_dir) / "script" / script.name),
        script_dir=str(script.folder),
        submitted_at=now.astimezone(UTC).isoformat(timespec="milliseconds"),
    )


def write_run_folder(plan: Plan, *, script: Script, job_text: str) -> Path:
    """Make the run's folder; returns the job script's path.

    A run that is requeued days later runs this copy, whatever became of the original.

    Raises:
        HomeError: it cannot be written; nothing of it is left then.
    """
    folder = Path(plan.run_dir)
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        (folder / "script").mkdir(mode=0o700)
        publish_bytes(Path(plan.script), script.content, mode=0o700)
        publish_bytes(folder / PLAN_NAME, plan_to_json(plan).encode())
        job_path = folder / JOB_SCRIPT_NAME
        publish_bytes(job_path, job_text.encode("utf-8", errors="surrogateescape"))
    except BaseException as error:
        remove_run_folder(plan)
        if isinstance(error, OSError):
            raise _unwritable(folder, error) from error
        raise
    return job_path


def remove_run_folder(plan: Plan) -> None:
    shutil.rmtree(plan.run_dir, ignore_errors=True)


def _unwritable(folder: Path, error: OSError) -> HomeError:
    return HomeError(
        f"cannot write the run folder {folder}: {error.strerror}",
        hint="submit from a folder that all nodes share and you may write, "
        "or set SBTRAIN_RUNS to one",
    )
