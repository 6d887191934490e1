"""The pages that people look for at 2 a.m. name what the code has: variables, exit codes,
states and causes, files of a run folder. No more, and no less."""

from __future__ import annotations

import importlib
import pkgutil
import re
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

import sbtrain
import sbtrain.errors
import sbtrain_jobs
import sbtrain_perf
import sbtrain_staging
from plans import example_plan
from run_folders import unknown_files
from sbtrain.commands.ctl import COMMANDS
from sbtrain.commands.entry import INTERRUPTED
from sbtrain.options.flag_table import FLAGS
from sbtrain.runs.standing import GONE, LOST, UNKNOWN
from sbtrain.slurm.states import JobState
from sbtrain_jobs.ending.job_control import EndCause
from sbtrain_jobs.ending.verdict import EXIT_ENDED_BY_NOTICE
from sbtrain_jobs.layouts.environment import run_environment
from sbtrain_jobs.layouts.trainer import RoleContext, role_environment
from sbtrain_jobs.node_agent.agent import NOT_STARTED
from sbtrain_jobs.record.ledger import END_CAUSES_FINAL
from sbtrain_jobs.run_folder import RunFolder
from sbtrain_jobs.wire.messages import EXIT_STOPPED
from sbtrain_perf.errors import SbtrainError
from sbtrain_perf.request import Framework
from sbtrain_staging.errors import StagingError

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
WINGS = (sbtrain, sbtrain_jobs, sbtrain_perf, sbtrain_staging)
VARIABLE = re.compile(r"SBTRAIN_[A-Z]+(?:_[A-Z]+)*")


def page(name: str) -> str:
    return (DOCS / name).read_text()


def first_cells(text: str) -> Iterator[str]:
    for line in text.splitlines():
        if line.startswith("| "):
            yield line.split(" | ")[0].removeprefix("| ")


def test_environment_names_every_variable_of_ours() -> None:
    files = [path for wing in WINGS for path in Path(wing.__path__[0]).rglob("*.py")]
    used = set(VARIABLE.findall("\n".join(path.read_text() for path in files)))
    said = set(VARIABLE.findall(page("environment.md")))
    assert used == {name.removesuffix("_N") for name in said}
    assert len(used) > 15


def test_environment_names_all_that_a_trainer_gains() -> None:
    plans = [example_plan(framework=name) for name in get_args(Framework)]
    context = RoleContext(
        rank=0,
        attempt=0,
        job_id="",
        plan_path="/plan.json",
        addresses=("10.0.0.1:1", "10.0.0.2:2"),
        data=(),
        control="10.0.0.1:3",
        token="t",
    )
    said = set(re.findall(r"`([A-Z_0-9]+)`", page("environment.md")))
    for plan in plans:
        assert set(role_environment(plan, context, {"CUDA_VISIBLE_DEVICES": "0"})) <= said
    marked = [cell for cell in first_cells(page("environment.md")) if cell.endswith("*")]
    gained = {*run_environment(plans[0], context), "PYTHONPATH"}
    assert gained == set(re.findall(r"`(\w+)`", str(marked)))


def errors_of(kind: type[Exception]) -> Iterator[type[Exception]]:
    yield kind
    for one in kind.__subclasses__():
        yield from errors_of(one)


def own_errors() -> dict[str, int]:
    """Every error with an exit code of its own, by name."""
    for wing in WINGS:
        for module in pkgutil.walk_packages(wing.__path__, f"{wing.__name__}."):
            if module.name.endswith((".errors", ".tables")):
                importlib.import_module(module.name)
    found = (*errors_of(SbtrainError), *errors_of(StagingError))
    return {one.__name__: one.exit_code for one in found if "exit_code" in vars(one)}


def test_exit_codes_are_those_of_the_errors() -> None:
    rows = re.findall(r"^\| (\d+) \| ([`\w, ]+) \|", page("exit-codes.md"), re.MULTILINE)
    said = {name: int(code) for code, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert said == own_errors()
    assert len(said) > 20


def test_the_tree_of_errors_is_drawn_whole() -> None:
    """A root of several stands for them with the range of their codes."""
    drawn = sbtrain.errors.__doc__ or ""
    spans = {
        name: range(int(low), int(high or low) + 1)
        for name, low, high in re.findall(r"(\w+Error) +(\d+)(?:-(\d+))?", drawn)
    }
    several = {code for span in spans.values() if len(span) > 1 for code in span}
    for name, code in own_errors().items():
        assert code in spans.get(name, several), name


def test_codes_that_are_no_error_are_on_the_page() -> None:
    said = set(first_cells(page("exit-codes.md")))
    for code in (0, EXIT_STOPPED, EXIT_ENDED_BY_NOTICE, NOT_STARTED, INTERRUPTED):
        assert str(code) in said


STATES = {*map(str, JobState), UNKNOWN, LOST, GONE, *END_CAUSES_FINAL}
CAUSES = {*get_args(EndCause), *END_CAUSES_FINAL, "running", "end not recorded"}


@pytest.mark.parametrize(("title", "known"), [("States", STATES), ("Causes", CAUSES)])
def test_status_names_every_state_and_cause(title: str, known: set[str]) -> None:
    section = page("status.md").partition(f"## {title}\n")[2].partition("\n## ")[0]
    cells = list(first_cells(section))
    said = {word for cell in cells for word in re.findall(r"`([\w -]+)`", cell)}
    assert known <= said
    assert said <= known | set(get_args(EndCause))


def test_the_run_folder_names_every_file_that_the_code_knows() -> None:
    folder = RunFolder(path=Path("/run"))
    attempt = folder.attempt(3)
    found = [
        *(folder.plan, folder.job_script, folder.ledger, folder.result, folder.script("a.py")),
        *(folder.checkpoints / "step-7/manifest.json", folder.task("4").plan),
        *(attempt.timings, attempt.staging_report, attempt.staging_events, attempt.unstaged),
        *(attempt.trainer_log("worker-0"), folder.python / "sbtrain"),
        attempt.commands / "scontrol",
    ]
    assert unknown_files([path.relative_to("/run") for path in found]) == []
    assert unknown_files([Path("attempts/3/core"), Path("plan.txt")]) != []
    names = [(one, name) for one in (folder, attempt) for name in dir(one) if name[0] != "_"]
    paths = [name for one, name in names if isinstance(getattr(one, name), Path)]
    assert len(paths) == 13, "a new name: put it into docs/run-folder.md, and in the list above"


PROSE = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
PLACES = [ROOT, *(Path(wing.__path__[0]).parent for wing in WINGS)]
PLACES += [Path(wing.__path__[0]) for wing in WINGS]
TREE = {entry.name for place in PLACES for entry in place.iterdir()}
FILE = re.compile(r"`([a-z][\w./-]*(?:/[\w.*-]*|\.(?:py|md|toml|json)))(?:::\S*)?`")


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_the_prose_points_to_is_there(path: Path) -> None:
    text = path.read_text()
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text)]
    for link in links:
        assert "://" in link or not link or (path.parent / link).exists(), link
    if path.name == "CHANGELOG.md":
        return  # what was need not be any more
    for name in FILE.findall(text):
        if name.partition("/")[0] in TREE:
            assert any(list(place.glob(name)) for place in PLACES), name


@pytest.mark.parametrize("path", PROSE, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_and_flags_in_the_prose_exist(path: Path) -> None:
    text = path.read_text()
    for name in re.findall(r"sbtrainctl ([a-z]+)\b", text):
        assert name in COMMANDS or path.name == "CHANGELOG.md", name
    for name in re.findall(r"--(train-[a-z-]+[a-z])", text):
        assert name in FLAGS, name


def test_the_readme_offers_the_extras_that_there_are() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    said = (ROOT / "README.md").read_text().partition("with the extra that brings it: ")[2]
    extras = set(re.findall(r"`([a-z-]+)`", said.partition(". ")[0]))
    assert extras == set(project["optional-dependencies"])


def test_the_readme_s_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: 1,000 steps that do nothing, a checkpoint, and a second call that resumes."""
    code = (ROOT / "README.md").read_text().partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["train.py"])
    loaded: list[Path] = []

    def save(folder: Path) -> None:
        (folder / "weights").write_text("w")

    for _ in range(2):
        exec(textwrap.dedent(code), {"load": loaded.append, "save": save})
    assert [path.name for path in loaded] == ["step-1000"]
    assert loaded[0].parent.resolve() == tmp_path / "checkpoints/train"
