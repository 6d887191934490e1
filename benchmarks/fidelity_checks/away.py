"""slurmctld stands still for some seconds at a random moment of a submission: afterwards there
is exactly one job, and its id was told. In the way `none` the call is sbatch's own, which gives
up after MessageTimeout though the job may be there: no more than one may be."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Sequence

from fidelity_checks.place import Place

_LIMIT_S = 240.0
_WAYS = {
    "none": ("job.sh",),
    "script": ("--train-launch=script", "job.sh"),
    "ranks": ("--train-steps=5", "job.py"),
}


def count_wrong(place: Place, *, each: int, seed: int, away_s: float) -> int:
    """Submissions, so many each way, that leave no job or several, or fail; each is told."""
    wrong = 0
    for number in range(each):
        for way, words in _WAYS.items():
            rng = random.Random(f"away {seed} {number} {way}")
            name = f"away-{way}-{number}"
            found = _submitted(place, (f"-J{name}", *words), rng.uniform(0, 1), away_s)
            jobs = place.slurm("squeue", "-h", f"--name={name}", "-o%i").split()
            gave_up = way == "none" and "timed out" in found[2] and len(jobs) < 2
            if found[:2] != (0, jobs) and not gave_up:
                wrong += 1
                print(f"{name}: exit {found[0]}, told {found[1]}, jobs {jobs}: {found[2]}")
        place.cancel_all()
    return wrong


def _submitted(
    place: Place, words: Sequence[str], after_s: float, away_s: float
) -> tuple[int, list[str], str]:
    """Exit status, ids that were told, stderr."""
    folder = place.made("call")
    (folder / "job.sh").write_text("#!/bin/sh\nsrun hostname\n")
    (folder / "job.py").write_text("print('trained')\n")
    slurmctld = int((place.state.parent / "run/slurmctld.pid").read_text())
    with subprocess.Popen(
        [str(place.sbtrain), "-H", *words], cwd=folder, env=dict(place.environ), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        time.sleep(after_s)
        os.kill(slurmctld, signal.SIGSTOP)
        try:
            time.sleep(away_s)
        finally:
            os.kill(slurmctld, signal.SIGCONT)
        out, err = process.communicate(timeout=_LIMIT_S)
    return process.returncode, re.findall(r"\d+", out), err
