"""One submission of a script, to its end, and what its ranks said of the world they found."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

SBTRAIN = str(Path(sys.executable).with_name("sbtrain"))
WITHIN_S = 300.0
_RUN_FOLDER = re.compile(r"^sbtrain: run folder (.+)$", re.M)
_WORLD = re.compile(r"^world (\d+) rank (\d+)", re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """state: Slurm's of the job; refused: what sbtrain said where it submitted none. worlds:
    (size, rank) as each rank said them; servers: as planned. seconds: until the end."""

    state: str
    job: str = ""
    refused: str = ""
    output: str = ""
    run_folder: Path | None = None
    worlds: tuple[tuple[int, int], ...] = ()
    servers: int = 0
    seconds: float = 0.0

    def wrong(self, *, nodes: int, per_node: int) -> str:
        """Why it did not come up right; or nothing."""
        if self.refused:
            return self.refused
        if self.state != "COMPLETED":
            return f"{self.state}: {self.output[-600:]}"
        workers = (nodes - self.servers) * per_node
        said = 1 if self.servers else workers
        if sorted(self.worlds) != [(workers, rank) for rank in range(said)]:
            return f"worlds {sorted(self.worlds)}, and not one of {workers}"
        return ""


def try_script(
    environ: Mapping[str, str],
    folder: Path,
    script: Path,
    *words: str,
    args: tuple[str, ...] = (),
) -> Try:
    """Hand it over as it is, and wait; what takes longer than WITHIN_S is cancelled."""
    folder.mkdir(parents=True, exist_ok=True)
    said = subprocess.run(
        [SBTRAIN, "--parsable", *words, str(script), *args],
        env=dict(environ),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if said.returncode:
        return Try(state="", refused=said.stderr)
    job = said.stdout.strip()
    began_s = time.monotonic()
    state = _ended(environ, job)
    seconds = time.monotonic() - began_s
    found = _RUN_FOLDER.search(said.stderr)
    run = Path(found[1]) if found else None
    output = folder / f"slurm-{job}.out"
    plan = json.loads((run / "plan.json").read_text()) if run else {}
    logs = sorted(run.glob("attempts/*/*.log")) if run else [output]
    return Try(
        state=state,
        job=job,
        output=output.read_text(errors="replace") if output.exists() else "",
        run_folder=run,
        worlds=tuple(
            (int(size), int(rank))
            for log in logs
            for size, rank in _WORLD.findall(log.read_text(errors="replace"))
        ),
        servers=plan.get("servers", 0),
        seconds=seconds,
    )


def _ended(environ: Mapping[str, str], job: str) -> str:
    """The job's last state; it is cancelled where it does not end in time."""
    until_s = time.monotonic() + WITHIN_S
    while time.monotonic() < until_s:
        state = _state(environ, job)
        if state not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED"):
            return state
        time.sleep(0.5)
    subprocess.run(["scancel", job], env=dict(environ), check=False, timeout=60)
    return f"still {_state(environ, job)} after {WITHIN_S:g} s"


def _state(environ: Mapping[str, str], job: str) -> str:
    shown = subprocess.run(
        ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T"],
        env=dict(environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return shown.stdout.strip() or "GONE"
