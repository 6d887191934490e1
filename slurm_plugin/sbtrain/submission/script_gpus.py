"""Whether a Python program can use GPUs at all, by what it and the modules beside it import:
one that imports nothing beyond the standard library and packages that compute on cores alone
is not given nodes for their GPUs."""

from __future__ import annotations

import sys
from pathlib import Path

from sbtrain.options.script import Script
from sbtrain_jobs.script_imports import imported_names, parsed

_ON_CORES = frozenset(
    {
        *("numpy", "scipy", "sklearn", "pandas", "h5py", "mpi4py", "matplotlib", "PIL", "yaml"),
        *("tqdm", "sbtrain", "sbtrain_jobs", "sbtrain_staging", "sbtrain_perf"),
    }
)
# What runs other code, of which nothing is known.
_RUNS_OTHERS = frozenset({"ctypes", "importlib", "runpy", "subprocess", "multiprocessing"})
_MOST_MODULES, _MOST_BYTES = 200, 1 << 20


def leaves_gpus_alone(script: Script) -> bool:
    """False also where that cannot be told."""
    if not script.is_python:
        return False
    seen = set[Path]()
    texts = [script.content]
    while texts and len(seen) < _MOST_MODULES:
        text = texts.pop()
        try:
            parsed(text, most_bytes=_MOST_BYTES)
        except ValueError:
            return False
        for name in imported_names(text.decode(errors="replace")):
            top = name.partition(".")[0]
            beside = _beside(script.folder, name)
            if not beside and top in _ON_CORES:
                continue
            if top in _RUNS_OTHERS or not (beside or top in sys.stdlib_module_names):
                return False
            for path in beside - seen:
                seen.add(path)
                texts.append(path.read_bytes())
    return not texts


def _beside(folder: Path, name: str) -> set[Path]:
    """Files of a module that lies beside the script, with those of the packages it is in."""
    parts = name.split(".")
    found = set()
    for depth in range(1, len(parts) + 1):
        module = folder.joinpath(*parts[:depth])
        found |= {module.with_suffix(".py"), module / "__init__.py"}
    return {path for path in found if path.is_file()}
