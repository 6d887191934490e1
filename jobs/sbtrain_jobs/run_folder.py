"""The folder of a run: every name in it, and which of them are there.

plan.json, job.sh, script/NAME    what was submitted
python/                           links to sbtrain's packages, for scripts of any interpreter
ledger.jsonl                      the cause ledger
checkpoints/                      unless the user names another folder
final/result.json                 what the script reported
attempts/N/                       timings.h5, stage.json, events.jsonl, bin/, ROLE-INDEX.log
                                  and .err
task-N/                           one task of an array: a run folder of its own
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

from sbtrain_jobs.errors import LaunchError
from sbtrain_perf.codec import plan_to_json
from sbtrain_perf.request import Plan
from sbtrain_perf.values import dataclass
from sbtrain_staging.publish import publish_bytes

_TASK = "task-"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFolder:
    """One attempt's part of a run folder."""

    path: Path

    def make(self) -> None:
        """Make it, private, where it is missing. Raises LaunchError."""
        _make(self.path)

    @property
    def timings(self) -> Path:
        return self.path / "timings.h5"

    @property
    def staging_report(self) -> Path:
        return self.path / "stage.json"

    @property
    def unstaged(self) -> Path:
        """There where staging failed, and the data is read where it lies."""
        return self.path / "unstaged"

    @property
    def staging_events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def commands(self) -> Path:
        """What trainers find first on their PATH."""
        return self.path / "bin"

    def trainer_log(self, role_name: str) -> Path:
        return self.path / f"{role_name}.log"

    def trainer_errors(self, role_name: str) -> Path:
        """Its stderr, where that is not in its log."""
        return self.path / f"{role_name}.err"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFolder:
    path: Path

    @classmethod
    def of(cls, plan: Plan) -> RunFolder:
        return cls(path=Path(plan.run_dir))

    def make(self) -> None:
        """Make it, private, where it is missing. Raises LaunchError."""
        _make(self.path)

    @property
    def plan(self) -> Path:
        return self.path / "plan.json"

    @property
    def job_script(self) -> Path:
        return self.path / "job.sh"

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def result(self) -> Path:
        return self.path / "final" / "result.json"

    def script(self, name: str) -> Path:
        return self.path / "script" / name

    @property
    def python(self) -> Path:
        return self.path / "python"

    def attempt(self, number: int) -> AttemptFolder:
        return AttemptFolder(path=self.path / "attempts" / str(number))

    def timing_logs(self) -> tuple[Path, ...]:
        """Those of its own attempts that are there."""
        return tuple(sorted(self.path.glob("attempts/*/timings.h5")))

    def task(self, number: str) -> RunFolder:
        return RunFolder(path=self.path / f"{_TASK}{number}")

    def tasks(self) -> dict[str, RunFolder]:
        """The tasks of an array that have a folder, by number."""
        found = [path.name.removeprefix(_TASK) for path in self.path.glob(f"{_TASK}*")]
        numbers = sorted((name for name in found if name.isdecimal()), key=int)
        return {number: self.task(number) for number in numbers}

    def task_of(self) -> tuple[RunFolder, str] | None:
        """Of a task's folder: the array's, and the task's number."""
        number = self.path.name.removeprefix(_TASK)
        if number == self.path.name or not number.isdecimal():
            return None
        return RunFolder(path=self.path.parent), number


def python_path(plan: Plan, *folders: str) -> str:
    """PYTHONPATH of these folders and, last, of the links to our packages: by these any
    interpreter finds `join`. The tasks of an array have those of the array."""
    ours = RunFolder(path=Path(plan.script).parent.parent).python
    return os.pathsep.join(filter(None, (*folders, str(ours) if ours.is_dir() else "")))


def plan_of_task(plan: Plan, task: str) -> Plan:
    """The plan of one task of an array, with folders of its own: tasks share nothing."""
    array = RunFolder.of(plan)
    folder, checkpoints = array.task(task), Path(plan.checkpoint_dir)
    own = checkpoints == array.checkpoints
    return dataclasses.replace(
        plan,
        run_id=f"{plan.run_id}-{task}",
        run_dir=str(folder.path),
        checkpoint_dir=str(folder.checkpoints if own else checkpoints / f"{_TASK}{task}"),
    )


def write_task_plan(plan: Plan) -> str:
    """The plan of an array task as a file of its own; its path. Raises LaunchError."""
    folder = RunFolder.of(plan)
    folder.make()
    try:
        publish_bytes(folder.plan, plan_to_json(plan).encode())
    except OSError as error:
        raise _unwritable(folder.path, error) from error
    return str(folder.plan)


def _make(folder: Path) -> None:
    try:
        # Of the parents that it makes, mkdir itself leaves the mode to the umask.
        for parent in reversed(folder.parents):
            parent.mkdir(exist_ok=True, mode=0o700)
        folder.mkdir(exist_ok=True, mode=0o700)
    except OSError as error:
        raise _unwritable(folder, error) from error


def _unwritable(folder: Path, error: OSError) -> LaunchError:
    return LaunchError(
        f"cannot write the run folder {folder}: {error.strerror}",
        hint="it must be on a filesystem that all nodes share, with room left",
    )
