"""The examples of jobs/examples, by the commands that the README shows."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest

from commands import clean_environ, sbtrain

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "jobs" / "examples"
COMMANDS = re.findall(r"`sbtrain (.* \w+\.py)` \|$", (ROOT / "README.md").read_text(), re.M)
NEEDS = {"pytorch": "torch", "jax": "jax", "horovod": "horovod"}  # not in `make test`
TENSORFLOW = {"tensorflow": "tensorflow"}  # has no wheel for the newest Python
LAST = re.compile(r"^step 200 of 200: loss (\d\.\d+)$", re.M)


def _case(command: str) -> object:
    needy = any(f" {name}_" in command for name in NEEDS)
    marks = [pytest.mark.slow, pytest.mark.frameworks] if needy else []
    return pytest.param(command, id=command, marks=marks)


@pytest.mark.slurm
@pytest.mark.parametrize("command", [_case(one) for one in COMMANDS])
def test_the_readmes_command_trains(
    command: str, slurm_environment: dict[str, str], tmp_path: Path
) -> None:
    *words, script = command.split()
    framework = (NEEDS | TENSORFLOW).get(script.partition("_")[0], "numpy")
    if importlib.util.find_spec(framework) is None:
        name = "TensorFlow" if framework in TENSORFLOW else framework
        pytest.skip(f"{name} is not installed")
    for one in EXAMPLES.glob("*.py"):
        shutil.copy(one, tmp_path)
    environ = clean_environ(**slurm_environment, SBTRAIN_HOME=str(tmp_path / "home"))
    environ["VIRTUAL_ENV"] = str(Path(sys.executable).parents[1])
    said = sbtrain("--parsable", "--wait", *words, script, cwd=tmp_path, environ=environ)
    output = (tmp_path / f"slurm-{said.stdout.strip()}.out").read_text()
    assert said.returncode == 0, output + said.stderr
    loss = LAST.search(output)
    assert loss is not None, output
    assert float(loss[1]) < 0.6


def test_each_example_has_its_command_in_the_readme() -> None:
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    helpers = {"digits_batches.py", "digits_data.py", "demo.py", "demo_figures.py"}
    shown = {command.split()[-1] for command in COMMANDS}
    assert programs - helpers - {"train_digits.py"} == shown
