"""What lint says of sbatch, on a real Slurm: that sbatch says nothing, and does as is said."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from clusters import until
from sbtrain_jobs.process import CommandFailedError, run_command

pytestmark = pytest.mark.slurm


@pytest.fixture
def shell(slurm_environment: dict[str, str], tmp_path: Path) -> Shell:
    return Shell(slurm_environment, tmp_path)


class Shell:
    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.environ = {
            **{k: v for k, v in os.environ.items() if not k.startswith(("SBATCH_", "SLURM_"))},
            **environment,
        }
        self.folder = folder

    def __call__(self, *argv: str, timeout_s: float = 120) -> tuple[str, str]:
        done = run_command(argv, timeout_s=timeout_s, env=self.environ, cwd=self.folder)
        return done.stdout, done.stderr

    def script(self, *lines: str) -> str:
        path = self.folder / "job.sh"
        path.write_text("\n".join(("#!/bin/bash", *lines, "")))
        return str(path)

    def held(self, *words: str) -> tuple[dict[str, str], str]:
        """What becomes of a call: the job's record, and what sbatch says beside its number."""
        out, err = self("sbatch", "--parsable", "--hold", *words)
        job = out.strip()
        record, _ = self("scontrol", "-o", "show", "job", job)
        self("scancel", job)
        return dict(re.findall(r"(\S+?)=(\S+)", record)), err

    def waited(self, *words: str) -> int:
        try:
            self("sbatch", "--wait", *words)
        except CommandFailedError as error:
            return error.returncode
        return 0


SILENT = [
    (("--exclusive", "--oversubscribe"), {"OverSubscribe": "YES"}),
    (("--oversubscribe", "--exclusive"), {"OverSubscribe": "NO"}),
    (("--requeue", "--no-requeue"), {"Requeue": "0"}),
    (("-N2", "-N4"), {"NumNodes": "4-4"}),
    (("-N2", "--ntasks-per-node=4", "-n2"), {"NumTasks": "2", "NumNodes": "2-2"}),
    (("-p", "spot", "--ntasks-per-gpu=2", "-G1", "-n4"), {"NumTasks": "2"}),
    (("-t", "1", "--signal=B:USR1@90"), {"TimeLimit": "00:01:00"}),
]
LINES = [
    ("#PBS -r n", {"Requeue": "1"}),
    ("#PBS -I", {"BatchFlag": "1"}),
    ("#PBS -l walltime=3600", {"TimeLimit": "2-12:00:00"}),
    ("#PBS -l pmem=100mb", {"MinMemoryNode": "0"}),
    ("#PBS -l ngpus=1", {"TresPerNode": None}),
    ("#PBS -l procs=3", {"NumTasks": "1"}),
    ("#PBS -l place=excl", {"OverSubscribe": "OK"}),
    ("#PBS -l naccesspolicy=singlejob", {"OverSubscribe": "OK"}),
    ("#PBS -l feature=none", {"Features": "(null)"}),
    ("#BSUB -W 1:30", {"TimeLimit": "00:02:00"}),
    ("#BSUB -J fit[1-8]", {"JobName": "fit[1-8]", "ArrayJobId": None}),
    ("#PBS -q spot\n#BSUB -n 3", {"Partition": "standard", "NumTasks": "3"}),
    ("# SBATCH -N2", {"NumNodes": "1"}),
    (" #SBATCH -N2", {"NumNodes": "1"}),
    ("#sbatch -N2", {"NumNodes": "1"}),
    ("#SBATCH-N2", {"NumNodes": "2-2"}),
    ("set -e\n#SBATCH -N2", {"NumNodes": "1"}),
]


@pytest.mark.parametrize(("words", "expected"), SILENT)
def test_sbatch_says_nothing_of_options_that_overrule_each_other(
    words: tuple[str, ...], expected: dict[str, str], shell: Shell
) -> None:
    try:
        record, err = shell.held(*words, shell.script("true"))
    except CommandFailedError as error:  # since 23.11 it refuses some
        assert "mutually exclusive" in str(error)  # noqa: PT017
        return
    assert err == ""
    assert {name: record.get(name) for name in expected} == expected


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_sbatch_says_nothing_of_lines_that_it_reads_otherwise(
    line: str, expected: dict[str, str | None], shell: Shell
) -> None:
    record, err = shell.held(shell.script(line, "true"))
    assert err == ""
    if record["NumNodes"] == "1-1":  # as 24.11 writes it
        record["NumNodes"] = "1"
    if record.get("Exclusive") == "NO":  # as 26.05 writes what it called OK before
        record["OverSubscribe"] = "OK"
    assert {name: record.get(name) for name in expected} == expected


def test_sbatch_itself_speaks_of_what_lint_leaves_out(shell: Shell) -> None:
    _, err = shell.held("-N2", "-n1", shell.script("true"))
    assert "can't run 1 processes on 2 nodes" in err
    with pytest.raises(CommandFailedError, match="node configuration is not available"):
        shell("sbatch", "-N2", "-n5", "--ntasks-per-node=2", shell.script("true"))


@pytest.mark.parametrize(
    "words",
    [
        ("-o", "missing/x"),
        ("-o", "ok", "-e", "missing/x"),
        ("-o", "here/%j/x"),
        ("-o", "here/"),
        ("-o", "here"),
        ("-o", "~/missing/x"),
        ("-D", "gone"),
    ],
)
def test_a_job_whose_log_cannot_be_opened_never_begins(
    words: tuple[str, ...], shell: Shell
) -> None:
    (shell.folder / "here").mkdir()
    ran = shell.folder / "ran"
    script = shell.script(f"touch {ran}")
    assert shell.waited("-o", "%j.out", script) == 0
    assert ran.exists()
    ran.unlink()
    made = _release(shell) >= (24, 11) and words not in (("-o", "here/"), ("-o", "here"))
    assert shell.waited(*words, script) == (0 if made else 1)  # missing folders are made there
    assert ran.exists() is made


def _release(shell: Shell) -> tuple[int, ...]:
    version, _ = shell("sbatch", "--version")
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def test_the_tasks_of_an_array_write_over_each_other(shell: Shell) -> None:
    script = shell.script("sleep $SLURM_ARRAY_TASK_ID", "echo $SLURM_ARRAY_TASK_ID")
    shell.waited("-a", "1-2%1", "-o", "out", script)
    assert (shell.folder / "out").read_text() == "2\n"
    shell.waited("-a", "1-2%1", "-o", "out-%a", script)
    assert (shell.folder / "out-1").read_text() == "1\n"


def test_srun_of_this_release_takes_no_cpus_from_its_job(shell: Shell) -> None:
    release = _release(shell)
    step = (
        "srun --exact sh -c 'scontrol show step $SLURM_JOB_ID.$SLURM_STEP_ID' | grep -o CPUs=."
    )
    script = shell.script(step, "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK", step)
    shell.waited("-n1", "-c3", "-o", "out", script)
    lost = (22, 5) <= release < (23, 11)
    lines = [one for one in (shell.folder / "out").read_text().split() if "CPUs=" in one]
    assert lines == ["CPUs=1" if lost else "CPUs=3", "CPUs=3"]


def test_gres_overrules_gpus_per_node(shell: Shell) -> None:
    script = shell.script("echo $CUDA_VISIBLE_DEVICES")
    options = ("-p", "spot", "-o", "out", "--gres=gpu:2", "--gpus-per-node=1")
    if _release(shell) >= (26, 5):
        with pytest.raises(CommandFailedError, match="mutually exclusive"):
            shell("sbatch", *options, script)
        return
    shell.waited(*options, script)
    assert (shell.folder / "out").read_text() == "0,1\n"


@pytest.mark.parametrize(("signal", "who"), [("USR1@60", "step"), ("B:USR1@60", "batch")])
def test_a_signal_without_b_reaches_the_steps_alone(
    signal: str, who: str, shell: Shell
) -> None:
    script = shell.script(
        "trap 'touch batch' USR1",
        "srun sh -c 'trap \"touch step\" USR1; touch begun; while :; do sleep 0.1; done' &",
        "while :; do wait; sleep 0.1; done",
    )
    place = ("--parsable", "-w", "c4", "-N1", "--exclusive", "-o", "/dev/null")
    low, _ = shell("sbatch", *place, "-p", "spot", f"--signal={signal}", script)
    folder, high = shell.folder, ""
    try:
        until("the step begins", (folder / "begun").exists, seconds=20)
        high, _ = shell("sbatch", *place, "-p", "urgent", "--wrap", "sleep 60")
        until("the signal comes", (folder / who).exists, seconds=20)
        time.sleep(2)
        assert not (folder / ("batch" if who == "step" else "step")).exists()
    finally:
        shell("scancel", low.strip(), *high.split())
