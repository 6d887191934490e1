"""Runs that are submitted from inside other jobs and runs, on a real Slurm: each touches its
own job alone, and nothing of what is around it passes for its own."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from commands import clean_environ, sbtrain, sbtrainctl
from sbtrain.slurm.client import JobInfo
from sbtrain.slurm.command_client import CommandsClient
from sbtrain.slurm.states import JobState
from sbtrain_jobs.process import run_command
from sbtrain_jobs.record.ledger import AttemptRecord, attempts, read_ledger
from sbtrain_jobs.run_folder import RunFolder

pytestmark = pytest.mark.slurm

BIN = Path(sys.executable).parent
TRAIN = """
import pathlib, time
from sbtrain_jobs import join
with join() as run:
    start = run.resume(lambda folder: None)
    for step in run.steps(start=start, save=lambda f: (pathlib.Path(f) / "s").write_text("1")):
        print("step", step, "done", flush=True)
        time.sleep(0.25)
"""
ENVIRON = "import json, os; open({path!r}, 'w').write(json.dumps(dict(os.environ)))\n"


class Around:
    """A folder, an environment and a client; what a test submits is ended after it."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self.folder = folder
        self.environ = {**environ, "PATH": f"{BIN}{os.pathsep}{environ['PATH']}"}
        self.slurm = CommandsClient(environ=environ)
        self.before = {job.number for job in self.slurm.jobs()}
        (folder / "tr.py").write_text(TRAIN)

    def new(self) -> list[JobInfo]:
        return [job for job in self.slurm.jobs() if job.number not in self.before]

    def sbatch(self, *words: str, **changes: str) -> str:
        said = run_command(
            ["sbatch", "--parsable", "--output=slurm-%j.out", *words],
            cwd=self.folder,
            env={**self.environ, **changes},
            timeout_s=60,
        )
        return said.stdout.strip()

    def wait(self, true: Callable[[], object], what: str, within_s: float = 90.0) -> None:
        end_s = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < end_s, f"not within {within_s} s: {what}\n{self.output}"
            time.sleep(0.2)

    @property
    def output(self) -> str:
        files = sorted(self.folder.glob("slurm-*.out"))
        return "\n".join(f"{file.name}:\n{file.read_text()}" for file in files)

    def of_array(self, job_id: str) -> list[JobInfo]:
        return [job for job in self.new() if job.array_job_id == int(job_id)]

    def inner(self, *but: str) -> JobInfo:
        """The one job that was submitted beside these."""
        (job,) = (job for job in self.new() if job.submission_id not in but)
        return job

    def run_folder(self) -> RunFolder:
        (folder,) = (self.folder / ".sbtrain/runs").iterdir()
        return RunFolder(path=folder)

    def attempts(self) -> tuple[AttemptRecord, ...]:
        return attempts(read_ledger(self.run_folder().ledger))

    def found(self, path: Path) -> dict[str, str]:
        self.wait(lambda: path.exists() and path.read_text(), f"{path} is written")
        read: dict[str, str] = json.loads(path.read_text())
        return read


@pytest.fixture
def around(slurm_environment: dict[str, str], tmp_path: Path) -> Iterator[Around]:
    environ = clean_environ(**slurm_environment, SBTRAIN_HOME=str(tmp_path / "home"))
    made = Around(tmp_path, environ)
    yield made
    for job in made.new():
        if not job.over:
            made.slurm.cancel(job.submission_id)


def test_a_run_inside_an_array_task_requeues_itself_alone(around: Around) -> None:
    call = "sbtrain -p spot -w g1 -N1 -o slurm-%j.out --train-steps 400 tr.py"
    outer = around.sbatch("--array=3", "-p", "standard", "--wrap", f"{call}; sleep 300")
    around.wait(lambda: "step 2 done" in around.output, "steps of the inner run")
    (task,) = around.of_array(outer)
    inner = around.inner(outer)
    around.before.add(
        int(around.sbatch("-p", "urgent", "-w", "g1", "--exclusive", "--wrap=true"))
    )
    around.wait(lambda: around.inner(outer).restarts == 1, "the inner run is requeued")
    around.wait(lambda: around.attempts()[0].ended_at, "the end is written")
    (first, *_) = around.attempts()
    assert (first.job_id, first.cause, first.requeued) == (inner.job_id, "preempted", True)
    (task,) = around.of_array(outer)
    assert (task.state, task.restarts) == (JobState.RUNNING, 0)
    status = json.loads(
        sbtrainctl("status", "--json", cwd=around.folder, environ=around.environ).stdout
    )
    assert [one["job_id"] for one in status] == [inner.job_id]
    assert around.run_folder().tasks() == {}


def test_a_restart_count_of_the_shell_is_not_the_jobs(around: Around) -> None:
    words = ("--wait", "-p", "standard", "-N1", "-o", "slurm-%j.out", "--train-steps", "10")
    environ = {
        **around.environ,
        "SLURM_RESTART_COUNT": "25",
        "SLURM_ARRAY_JOB_ID": "1",
        "SLURM_ARRAY_TASK_ID": "4",
    }
    said = sbtrain(*words, "--wrap", "true", cwd=around.folder, environ=environ)
    assert said.returncode == 0, said.stderr + around.output
    (only,) = around.attempts()
    assert (only.attempt, only.job_id) == (0, around.inner().job_id)


def test_a_plan_that_is_run_by_hand_in_another_job_is_refused(around: Around) -> None:
    words = ("-p", "standard", "-N1", "--hold", "--train-steps", "400")
    said = sbtrain(*words, "tr.py", cwd=around.folder, environ=around.environ)
    assert said.returncode == 0, said.stderr
    held = said.stdout.split()[-1]
    plan = around.run_folder().plan
    call = f"{sys.executable} -P -m sbtrain.commands.batch {plan}"
    calls = f"{call}; echo status $?; srun -n1 {call}; echo status $?; sleep 300"
    outer = around.sbatch("-p", "standard", "--wrap", calls)
    around.wait(lambda: around.output.count("status") == 2, "the plan is refused")
    said = f"error: this is not the batch script of job {outer}"
    assert (around.output.count(said), around.output.count("status 21")) == (2, 2)
    assert around.attempts() == ()
    jobs = {job.job_id: (job.state, job.restarts) for job in around.new()}
    assert jobs == {held: (JobState.PENDING, 0), outer: (JobState.RUNNING, 0)}


def test_what_the_job_around_asked_for_does_not_bind_the_runs_steps(around: Around) -> None:
    """SLURM_GPUS and SLURM_MEM_PER_CPU of the outer job: srun would ask for that."""
    call = (
        "sbtrain --wait -p standard -N1 --mem=200 -o slurm-%j.out --train-steps 5 --wrap true"
    )
    asks = ("--gpus=1", "--mem-per-cpu=50", "--ntasks=2", "--distribution=plane=2")
    around.sbatch(*asks, "-p", "spot", "--wrap", f"{call}; echo status $?")
    around.wait(lambda: "status" in around.output, "the inner run ends")
    assert "status 0" in around.output, around.output


def test_a_run_inside_a_run_is_a_run_of_its_own(around: Around) -> None:
    """A trainer submits one with sbtrain, and one with sbatch of which the script joins."""
    folder = around.folder
    (folder / "inner.py").write_text(ENVIRON.format(path=str(folder / "inner.json")))
    joins = "from sbtrain_jobs import join\nwith join() as run:\n    print('rank', "
    (folder / "joins.py").write_text(f"{joins}run.rank, run.world_size, flush=True)\n")
    (folder / "outer.py").write_text(
        "import os, subprocess, time\n"
        "inner = 'sbtrain -p standard -N1 -o slurm-%j.out --train-steps 5 inner.py'.split()\n"
        f"wrapped = '--wrap={sys.executable} joins.py'\n"
        "alone = ['sbatch', '-p', 'standard', '-o', 'slurm-%j.out', wrapped]\n"
        "if os.environ['SBTRAIN_RANK'] == '1':\n"
        f"    {ENVIRON.format(path=str(folder / 'outer.json'))}"
        "    for call in (inner, alone):\n"
        "        print(subprocess.run(call, check=True), flush=True)\n"
        "time.sleep(600)\n"
    )
    words = ("-p", "standard", "-N2", "-o", "slurm-%j.out", "--train-steps=5", "outer.py")
    said = sbtrain(*words, cwd=folder, environ=around.environ)
    assert said.returncode == 0, said.stderr
    around.wait(lambda: len(around.new()) == 3, "both have been submitted")
    around.wait(lambda: re.search(r"^rank \d", around.output, re.M), "the script joins")
    assert re.search(r"^rank 0 1$", around.output, re.M), around.output
    outer, inner = around.found(folder / "outer.json"), around.found(folder / "inner.json")
    of_run = {name for name in outer if name.startswith("SBTRAIN_")} | {"TF_CONFIG"}
    same = {name for name in of_run if inner.get(name) == outer[name]}
    assert same <= {
        "SBTRAIN_ROLE",
        "SBTRAIN_ATTEMPT",
        "SBTRAIN_RESUME_UP_TO",
        "SBTRAIN_NODE",
        "SBTRAIN_SCRIPT_DIR",
        "SBTRAIN_HOME",
        "SBTRAIN_DATA",
    }
    assert (inner["SBTRAIN_RANK"], inner["RANK"], inner["WORLD_SIZE"]) == ("0", "0", "1")
    assert Path(outer["TMPDIR"]).name.startswith("tmp-sbtrain-")
    assert inner["TMPDIR"] not in ("/tmp", outer["TMPDIR"])
    assert inner["SBTRAIN_JOB_ID"] == inner["SLURM_JOB_ID"] != outer["SBTRAIN_JOB_ID"]


def test_files_named_as_slurms_commands_that_run_sbtrain(around: Around) -> None:
    """sbatch runs sbtrain; srun and squeue are a site's own, in front of Slurm's."""
    folder = around.folder
    (folder / "inner.py").write_text(ENVIRON.format(path=str(folder / "inner.json")))
    wrappers = folder / "wrappers"
    wrappers.mkdir()
    ends = f"[ $(grep -c sbatch {folder}/starts) -le 6 ] || exit 99"  # where it is wrong
    lines = {"sbatch": f'{ends}\nexec {BIN}/sbtrain --train-steps=5 "$@"'}
    for name in ("srun", "squeue"):
        real = run_command(["which", name], timeout_s=10, env=around.environ).stdout.strip()
        lines[name] = f'exec {real} "$@"'
    for name, line in lines.items():
        path = wrappers / name
        path.write_text(f"#!/bin/sh\necho {name} >> {folder}/starts\n{line}\n")
        path.chmod(0o700)
    environ = {**around.environ, "PATH": f"{wrappers}{os.pathsep}{around.environ['PATH']}"}
    said = run_command(
        ["env", "sbatch", "--wait", "-p", "standard", "-N1", "-o", "slurm-%j.out", "inner.py"],
        cwd=folder,
        env=environ,
        timeout_s=120,
        check="keep",
    )
    assert said.returncode == 0, said.stderr + around.output
    assert said.stdout == f"Submitted batch job {around.inner().job_id}\n"
    starts = (folder / "starts").read_text().split()
    assert (starts.count("sbatch"), starts.count("srun")) == (1, 1)
    assert "SBTRAIN_SLURM_CALL" not in around.found(folder / "inner.json")
    assert len((folder / "home/runs.jsonl").read_text().splitlines()) == 1
