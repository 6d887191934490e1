"""What somebody does on a cluster that nobody has configured, and whether it works."""

from __future__ import annotations

import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

SBTRAIN = str(Path(sys.executable).with_name("sbtrain"))
_OVER = re.compile(r"JobState=(COMPLETED|FAILED|CANCELLED|TIMEOUT|NODE_FAIL|PREEMPTED)")
_SILENT = ("REQUEST_STATS_INFO", "REQUEST_STATS_RESET", "MESSAGE_NODE_REGISTRATION_STATUS")
_OF_THE_JOB = ("REQUEST_JOB_INFO", "REQUEST_SUBMIT_BATCH_JOB")
PLAIN = "#!/bin/sh\necho plain on $SLURM_JOB_PARTITION\n"
TRAINS = """\
import pathlib, time
from sbtrain_jobs import join

try:
    import torch  # so that GPUs may be of use
except ImportError:
    torch = None
with join() as run:
    start = run.resume(lambda folder: None)
    for step in run.steps(start=start, save=lambda folder: (folder / "s").write_text("1")):
        time.sleep(0.01)
"""


def call(
    environ: Mapping[str, str], folder: Path, *argv: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, env=dict(environ), cwd=folder, capture_output=True, text=True, timeout=120,
        check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def wrong_without_a_file(environ: Mapping[str, str], folder: Path) -> Iterator[str]:
    """What does not work of a plain submission, an explanation and a training."""
    (folder / "a.sh").write_text(PLAIN)
    (folder / "train.py").write_text(TRAINS)
    theirs = call(environ, folder, "sbatch", "--parsable", "-o", "sbatch.out", "a.sh")
    ours = call(environ, folder, SBTRAIN, "--parsable", "-o", "sbtrain.out", "a.sh")
    if (theirs.returncode, theirs.stderr) != (ours.returncode, ours.stderr):
        yield f"plain: sbatch {theirs.returncode} {theirs.stderr}, we {ours.stderr}"
    explained = call(
        environ, folder, SBTRAIN, "--train-explain", "--train-steps=20", "train.py"
    )
    if explained.returncode:
        yield f"--train-explain: {explained.returncode} {explained.stderr}"
    words = ("--parsable", "--train-steps=20", "-o", "train.out", "train.py")
    trains = call(environ, folder, SBTRAIN, *words)
    if trains.returncode:
        yield f"training: {trains.returncode} {trains.stderr}"
    for name, said, text in (
        ("sbatch", theirs, "plain on "),
        ("sbtrain", ours, "plain on "),
        ("train", trains, "training is complete"),
    ):
        if said.returncode == 0:
            state = ended(environ, folder, said.stdout.strip())
            output = folder / f"{name}.out"
            written = output.read_text() if output.exists() else ""
            if state != "COMPLETED" or text not in written:
                yield f"{name}: {state}, {written[-800:]} {said.stderr}"


def ended(environ: Mapping[str, str], folder: Path, job: str, *, within_s: float = 90.0) -> str:
    """The job's state once it is over; else as it then is, with Slurm's reason."""
    until_s = time.monotonic() + within_s
    while True:
        shown = call(environ, folder, "scontrol", "show", "job", job).stdout
        over = _OVER.search(shown)
        if over:
            return over[1]
        if time.monotonic() > until_s:
            reason = re.search(r"JobState=\S+ Reason=\S+", shown)
            call(environ, folder, "scancel", job)
            return reason[0] if reason else "not known"
        time.sleep(0.3)


def questions(environ: Mapping[str, str], folder: Path) -> dict[str, int]:
    """What slurmctld is asked by one explanation, beside the queue's own question."""
    call(environ, folder, "sdiag", "-r")
    call(environ, folder, SBTRAIN, "--train-explain", "--train-steps=20", "train.py")
    said = call(environ, folder, "sdiag").stdout
    counted = re.findall(r"^\s+([A-Z_]+)\s+\(\s*\d+\) count:(\d+)", said, re.M)
    others = (*_SILENT, *_OF_THE_JOB)
    return {name: int(count) for name, count in counted if name not in others}


def cpu_ms(environ: Mapping[str, str], folder: Path, *more: str) -> float:
    """CPU time of one explanation, its children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    call(environ, folder, SBTRAIN, *more, "--train-explain", "--train-steps=20", "train.py")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def shown_site(environ: Mapping[str, str], folder: Path) -> str:
    """The site as a file, of Slurm's own word."""
    return call(environ, folder, SBTRAIN + "ctl", "site", "init").stdout
