"""Whether a Python program can use GPUs at all, by what it and the modules beside it import:
one that imports nothing beyond the standard library and packages that compute on cores alone
is not given nodes for their GPUs."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from sbtrain.options.script import Script
from sbtrain_jobs.script_imports import parsed

_ON_CORES = frozenset(
    {
        *("numpy", "scipy", "sklearn", "pandas", "h5py", "mpi4py", "matplotlib", "PIL", "yaml"),
        *("tqdm", "sbtrain", "sbtrain_jobs", "sbtrain_staging", "sbtrain_perf"),
    }
)
# What runs other code, of which nothing is known.
_RUNS_OTHERS = frozenset(
    {
        *("ctypes", "importlib", "runpy", "subprocess", "multiprocessing", "pkgutil", "pty"),
        *("__import__", "exec", "eval", "compile", "system", "popen", "import_module"),
        *("resolve_name", "create_subprocess_exec", "create_subprocess_shell"),
        *("execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp", "execvpe"),
        *("spawnl", "spawnle", "spawnlp", "spawnlpe", "spawnv", "spawnve", "spawnvp"),
        *("spawnvpe", "posix_spawn", "posix_spawnp"),
    }
)
_MOST_MODULES, _MOST_BYTES = 200, 1 << 20


def leaves_gpus_alone(script: Script) -> bool:
    """False also where that cannot be told."""
    if not script.is_python:
        return False
    seen = set[Path]()
    texts = [(script.content, script.folder)]
    while texts and len(seen) < _MOST_MODULES:
        text, folder = texts.pop()
        try:
            names = list(_names(parsed(text, most_bytes=_MOST_BYTES)))
        except ValueError:
            return False
        for level, name in names:
            beside = _beside(script.folder if not level else _above(folder, level), name)
            top = name.partition(".")[0]
            if not _RUNS_OTHERS.isdisjoint(name.split(".")):
                return False
            if not (beside or level or top in _ON_CORES or top in sys.stdlib_module_names):
                return False
            for path in beside - seen:
                seen.add(path)
                texts.append((path.read_bytes(), path.parent))
    return not texts


def _names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Modules that are imported, with the dots before them, and names that may run others."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = f"{node.module}." if node.module else ""
            yield from ((node.level, f"{module}{alias.name}") for alias in node.names)
            if node.module:
                yield node.level, node.module
        elif isinstance(node, ast.Name) and node.id in _RUNS_OTHERS:
            yield 0, node.id
        elif isinstance(node, ast.Attribute) and node.attr in _RUNS_OTHERS - {"compile"}:
            yield 0, node.attr  # re.compile runs nothing


def _above(folder: Path, level: int) -> Path:
    """Where a relative import of a module in a folder begins."""
    return folder if level < 2 else folder.parents[min(level - 2, len(folder.parents) - 1)]


def _beside(folder: Path, name: str) -> set[Path]:
    """Files of a module that lies beside the script, with those of the packages it is in."""
    parts = name.split(".")
    found = set()
    for depth in range(1, len(parts) + 1):
        module = folder.joinpath(*parts[:depth])
        found |= {module.with_suffix(".py"), module / "__init__.py"}
    return {path for path in found if path.is_file()}
