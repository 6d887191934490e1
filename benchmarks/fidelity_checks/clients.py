"""Programs that submit by sbatch, each doing a small piece of work (`benchmarks/
fidelity_clients/`): what it prints is compared by `fidelity.py --clients PYTHON`, PYTHON being
an interpreter in which they are installed. One that is not is left out, and said."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from fidelity_checks.place import Place

_FOLDER = Path(__file__).resolve().parent.parent / "fidelity_clients"
_MODULES = {
    "snakemake": "snakemake_executor_plugin_slurm",
    "torchrun": "torch",
}  # others are called as their folders


def compare_clients(place: Place, python: Path) -> tuple[int, int]:
    """How many were tried, and how many do other things with sbtrain in sbatch's place."""
    first = place.made("clients-first")
    wrapper = first / "sbatch"
    wrapper.write_text(f'#!/bin/sh\nexec {place.sbtrain} "$@"\n')
    wrapper.chmod(0o755)
    path = f"{python.parent}:{place.environ['PATH']}"
    tried = differing = 0
    for client in _installed(python):
        name = f"{client.parent.name}/{client.name}"
        right = _done(place, python, client, path)
        ours = _done(place, python, client, f"{first}:{path}")
        tried += 1
        same = right == ours
        differing += not same
        print(f"{name}: {'the same' if same else 'DIFFERS'}: {right!r:.300}")
        if not same:
            print(f"    with sbtrain: {ours!r:.1500}")
    return tried, differing


def _installed(python: Path) -> Iterator[Path]:
    for folder in sorted(_FOLDER.iterdir()):
        module = _MODULES.get(folder.name, folder.name)
        looked = subprocess.run(
            [python, "-c", f"import {module}"], capture_output=True, check=False
        )
        if looked.returncode:
            print(f"{folder.name}: not installed")
        else:
            yield from sorted(folder.glob("client*.py"))


def _done(place: Place, python: Path, client: Path, path: str) -> tuple[int, str]:
    folder = place.made("client")
    shutil.copytree(client.parent, folder, dirs_exist_ok=True)
    environ = {**place.environ, "PATH": path, "PYTHONPATH": str(folder)}
    try:
        said = subprocess.run(
            [python, client.name], cwd=folder, env=environ, capture_output=True, text=True,
            timeout=240, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        return -1, f"not within {late.timeout:g} s"
    finally:
        place.cancel_all()
    shown = said.stdout if said.returncode == 0 else said.stdout + said.stderr[-800:]
    lines = [line for line in shown.splitlines() if "WARNING" not in line]  # of sacct, timed
    return said.returncode, re.sub(r"\b[5-9]\d{6}\b", "JOB", "\n".join(lines))
