"""What a user's program loads of ours: listed in pyproject.toml, alone with the standard
library, and run by the Pythons that are older than sbtrain's own."""

from __future__ import annotations

import ast
import dataclasses
import functools
import os
import re
import signal
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from counting_trainer import TRAIN
from older_pythons import IMPORT_PATH, ROOT, WINGS, python_of
from sbtrain_jobs.node_agent.trainer_command import HOOKS
from sbtrain_jobs.process import CommandResult, run_command
from sbtrain_perf import codec, python39, request
from supervised_runs import supervised_run

OLDER = ("3.9", "3.10")
TOO_OLD = ("3.6", "3.7", "3.8")
SLIPPED_IN = ["sbtrain_jobs.hooks.imports", "sbtrain_jobs.hooks.path.sitecustomize"]
READERS = [f"sbtrain_staging.readers.{name}" for name in ("reader", "streaming", "row_batches")]
GLUE = {  # of a framework, which such a file imports at its head: whoever asks for it has it
    "sbtrain_jobs.hooks.jax_steps": {"jax"},
    "sbtrain_jobs.hooks.tensorflow_steps": {"tensorflow"},
    "sbtrain_jobs.hooks.torch_steps": {"torch"},
    "sbtrain_jobs.hooks.worlds": {"jax"},
    "sbtrain_jobs.layouts.tensorflow": {"tensorflow"},
    "sbtrain_staging.readers.tf_rows": {"tensorflow"},
    "sbtrain_staging.readers.torch_rows": {"torch"},
}
USERS = {"numpy", "h5py", "xxhash"}  # imported in functions, when the program asks for them


def file_of(module: str) -> Path | None:
    for wing in WINGS:
        place = ROOT.joinpath(wing, *module.split("."))
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                return path
    return None


def imports(node: ast.AST, *, at_head: bool = False) -> Iterator[str]:
    """Modules that run when the node does, or, unless at_head, when its functions do."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.FunctionDef) and at_head:
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield child.module
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        yield from imports(child, at_head=at_head)


@functools.cache
def loaded() -> dict[str, Path]:
    """Every module of ours that a program may load, by name."""
    waiting = ["sbtrain", "sbtrain_jobs.training.session", *SLIPPED_IN, *GLUE, *READERS]
    found: dict[str, Path] = {}
    while waiting:
        module = waiting.pop()
        path = file_of(module)
        if path is not None and module not in found:
            found[module] = path
            waiting += imports(ast.parse(path.read_text()))
            waiting.append(module.rpartition(".")[0])
    return found


def spread(pattern: str) -> list[str]:
    """A pattern with braces as patterns without."""
    if (braces := re.search(r"\{(.*?)\}", pattern)) is None:
        return [pattern]
    start, end = pattern[: braces.start()], pattern[braces.end() :]
    return [one for word in braces[1].split(",") for one in spread(f"{start}{word}{end}")]


def listed() -> set[Path]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]
    versions = settings["per-file-target-version"]
    assert set(versions.values()) == {"py39"}
    return {path for each in versions for one in spread(each) for path in ROOT.glob(one)}


def test_what_a_program_loads_is_listed() -> None:
    assert listed() == set(loaded().values())


def test_what_a_program_loads_needs_no_package() -> None:
    own = {name.partition(".")[0] for name in loaded()} | set(sys.stdlib_module_names)
    for module, path in loaded().items():
        tree = ast.parse(path.read_text())
        at_head = {name.partition(".")[0] for name in imports(tree, at_head=True)} - own
        anywhere = {name.partition(".")[0] for name in imports(tree)} - own
        assert at_head <= GLUE.get(module, set()), module
        assert anywhere - at_head <= USERS | GLUE.get(module, set()), module


def test_what_a_program_loads_names_nothing_newer_than_python_3_9() -> None:
    argv = [
        str(Path(sys.executable).with_name("vermin")),
        "-t=3.9-",
        "--violations",
        "--no-tips",
    ]
    said = run_command([*argv, *map(str, sorted(listed()))], timeout_s=120, check="keep")
    assert said.returncode == 0, said.stdout


def unions(path: Path) -> Iterator[str]:
    """`A | B` of types outside of annotations, which Python 3.9 evaluates, and cannot."""
    tree = ast.parse(path.read_text())
    notes: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            notes.update(ast.walk(node))
        for name in ("annotation", "returns"):
            if (note := getattr(node, name, None)) is not None:
                notes.update(ast.walk(note))
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and node not in notes:
            for side in map(ast.unparse, (node.left, node.right)):
                last = side.rpartition(".")[2]
                if re.fullmatch(
                    r"None|[A-Z]\w*[a-z]\w*|int|str|float|bytes|list|tuple|dict", last
                ):
                    yield f"{path}:{node.lineno}: {ast.unparse(node)}"


def test_what_a_program_loads_joins_no_types_while_it_runs() -> None:
    assert [found for path in sorted(listed()) for found in unions(path)] == []


# -- values ------------------------------------------------------------------------------


def value_class(decorator: Callable[..., Any]) -> Any:
    @decorator(frozen=True, slots=True, kw_only=True)
    class Value:
        first: int = 1
        second: str  # required, after one that is not
        third: tuple[int, ...] = dataclasses.field(default_factory=tuple)

    return Value


@pytest.mark.parametrize("decorator", [dataclasses.dataclass, python39.dataclass])
def test_values_of_python_3_9_are_values(decorator: Callable[..., Any]) -> None:
    kind = value_class(decorator)
    value = kind(second="b")
    assert dataclasses.asdict(value) == {"first": 1, "second": "b", "third": ()}
    assert repr(value).endswith("Value(first=1, second='b', third=())")
    assert value == kind(second="b", first=1) != kind(second="c")
    assert len({value, kind(second="b")}) == 1
    assert dataclasses.replace(value, first=2) == kind(first=2, second="b")
    for name in ("first", "other"):
        with pytest.raises((AttributeError, TypeError)):
            setattr(value, name, 2)
    for args, named in (((), {}), ((1, "b"), {}), ((), {"second": "b", "other": 1})):
        with pytest.raises(TypeError):
            kind(*args, **named)


def test_only_values_are_decorated_in_python_3_9() -> None:
    with pytest.raises(TypeError, match="frozen"):
        python39.dataclass(frozen=False, slots=True, kw_only=True)


@pytest.mark.parametrize("kind", [request.Plan, request.Request, request.Partition])
def test_the_types_of_fields_are_those_that_python_3_10_finds(kind: type) -> None:
    hints = codec.field_types(kind)
    assert python39.field_types(kind) == hints


# -- real ones ---------------------------------------------------------------------------


def ran(version: str, *args: str, cwd: Path) -> CommandResult:
    environ = {**os.environ, "PYTHONPATH": IMPORT_PATH, "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [python_of(version), "-W", "error", *args]
    return run_command(argv, cwd=cwd, env=environ, timeout_s=120, check="keep")


LOADS = """
import importlib, sys
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


@pytest.mark.parametrize("version", OLDER)
def test_all_of_it_loads_in_an_older_python(version: str, tmp_path: Path) -> None:
    names = sorted(set(loaded()) - set(GLUE))
    said = ran(version, "-c", LOADS, *names, cwd=tmp_path)
    assert said.returncode == 0, said.stderr
    not_pythons = set(said.stdout.split()) - set(sys.stdlib_module_names)
    ours = {name.partition(".")[0] for name in loaded()}
    assert {name for name in not_pythons if not name.startswith("_")} == ours


@pytest.mark.parametrize("version", OLDER)
def test_a_program_of_an_older_python_resumes_alone(version: str, tmp_path: Path) -> None:
    text = TRAIN.replace("STEP_S", "0").replace("sbtrain_jobs", "sbtrain")
    (tmp_path / "train.py").write_text(text.replace("join()", "join(default_steps=5)"))
    for start in (0, 5):
        said = ran(version, "train.py", cwd=tmp_path)
        assert said.returncode == 0, said.stderr
        assert f"starts after step {start}\n" in said.stdout
    assert (tmp_path / "checkpoints/train/step-5/w.json").read_text() == "5"


@pytest.mark.parametrize("version", OLDER)
def test_a_program_of_an_older_python_is_preempted_and_comes_back(
    version: str, tmp_path: Path
) -> None:
    told = "import sys; print('by', '%d.%d' % sys.version_info[:2], flush=True)\n"
    text = f"#!{python_of(version)}\n{told}{TRAIN}"
    run = supervised_run(tmp_path, text, steps=40, step_s=0.1)
    run.environ["PYTHONPATH"] = IMPORT_PATH
    try:
        run.start()
        run.wait_for(lambda: "sbtrain: step " in run.output)
        run.say_cause("preempted")
        run.signal(signal.SIGUSR1)
        assert run.wait() == 85, run.output
        saved = run.last("saved").step
        assert saved
        assert run.saved_steps == [saved]
        assert run.requeues == ["7"]
        run.say_cause("none")
        run.start(restart_count=1)
        assert run.wait() == 0, run.output
    finally:
        run.stop()
    assert run.result() == {"weight": 40.0}
    for rank in (0, 1):
        log = run.log(f"worker-{rank}", attempt=1)
        assert f"by {version}\n" in log
        assert f"rank {rank} attempt 1 starts after step {saved}\n" in log


@pytest.mark.parametrize("version", TOO_OLD)
@pytest.mark.parametrize("package", ["sbtrain", "sbtrain_jobs"])
def test_a_python_that_is_too_old_is_told_what_is_needed(
    version: str, package: str, tmp_path: Path
) -> None:
    said = ran(version, "-c", f"from {package} import join", cwd=tmp_path)
    needs = rf"ImportError: join\(\) needs Python 3\.9 or newer, and this is {version}\."
    assert re.search(needs, said.stderr), said.stderr


@pytest.mark.parametrize("version", ["2.7", *TOO_OLD, *OLDER])
def test_hooks_start_in_silence_in_any_python(version: str, tmp_path: Path) -> None:
    environ = {
        **os.environ,
        "PYTHONPATH": f"{HOOKS}:{IMPORT_PATH}",
        "SBTRAIN_ROLE": "ps",
    }
    argv = [python_of(version), "-W", "error", "-c", "print(1)"]
    said = run_command(argv, cwd=tmp_path, env=environ, timeout_s=60, check="keep")
    assert (said.returncode, said.stdout, said.stderr) == (0, "1\n", "")
