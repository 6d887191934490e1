"""The names that a training script imports, and where it keeps its state when run by hand."""

from __future__ import annotations

import sys
from pathlib import Path

import sbtrain
import sbtrain_jobs
from commands import clean_environ
from sbtrain_jobs.process import run_command

TRAIN = """
from pathlib import Path
from sbtrain import join

with join(default_steps=2) as run:
    start = run.resume(lambda folder: None)
    for step in run.steps(start=start, save=lambda folder: (folder / "s").write_text("1")):
        pass
print("began at", start)
"""


def test_both_packages_give_the_same_names() -> None:
    assert sbtrain.join is sbtrain_jobs.join
    assert sbtrain.Run is sbtrain_jobs.Run
    assert not hasattr(sbtrain, "nothing")


def test_the_commands_do_not_pay_for_the_training_api() -> None:
    code = (
        "import sys, sbtrain; print([m for m in sys.modules if m.startswith('sbtrain_jobs')])"
    )
    assert run_command([sys.executable, "-c", code], timeout_s=60).stdout.strip() == "[]"


def test_scripts_that_are_run_by_hand_in_one_folder_do_not_meet(tmp_path: Path) -> None:
    for name, began in (("one", 0), ("two", 0), ("one", 2)):
        script = tmp_path / f"{name}.py"
        script.write_text(TRAIN)
        said = run_command(
            [sys.executable, str(script)], cwd=tmp_path, env=clean_environ(), timeout_s=60
        ).stdout
        assert said == f"began at {began}\n"
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["one", "two"]
