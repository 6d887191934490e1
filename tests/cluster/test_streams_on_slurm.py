"""The streams of a script that sbtrain starts once for every rank, beside those that sbatch
gives to the same script: files, names, contents, and what is standard input."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from commands import clean_environ, sbtrain
from sbtrain.slurm.command_client import CommandsClient
from sbtrain_jobs.process import run_command
from slurm_runs import SLURMS_WORDS, SlurmRun, slurm_run

pytestmark = pytest.mark.slurm

TALKS = """#!/usr/bin/env python3
DIRECTIVES
import os, sys

source = os.readlink("/proc/self/fd/0")
print("from", source, sys.stdin.buffer.seekable(), repr(sys.stdin.read()), flush=True)
for number in range(100):
    os.write(1, b"out %d " % number + b"o" * 3000 + b"\\n")
    os.write(2, b"err %d " % number + b"e" * 3000 + b"\\n")
sys.stderr.write("no newline here")
"""
RANKS = ("--train-launch=ranks", "--train-layout=allreduce", "--train-steps=1")
ONE_NODE = ("-N1", "-n1", "-c1", "-p", "standard")  # many at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    words: Sequence[str] = ()
    lines: Sequence[str] = ()
    environ: Mapping[str, str] | None = None


CASES = {
    "neither": Case(),
    "both": Case(words=("-o", "o-%j-%x-%u-%N-%n-%t-%s.txt", "-e", "e-%j-%x-%u-%N-%n-%t.txt")),
    "stderr alone": Case(words=("--error=e-%j.txt",)),
    "one file, named twice": Case(words=("-o", "all.txt", "-e", "./all.txt")),
    "nowhere": Case(words=("-o", "/dev/null", "-e", "e.txt")),
    "directives": Case(lines=("#SBATCH -e e-%J.txt", "#SBATCH --input=in.txt")),
    "environment": Case(environ={"SBATCH_ERROR": "e-%j.txt", "SBATCH_INPUT": "in.txt"}),
    "a file that is there": Case(words=("-o", "old.txt")),
    "input": Case(words=("-i", "in-%x.txt")),
    "an array": Case(words=("-a", "1-2", "-o", "o-%A-%a.txt", "-e", "e-%A-%a.txt")),
    "what srun would heed": Case(
        words=("-e", "e.txt"),
        environ={
            "SLURM_LABELIO": "1",
            "SLURM_UNBUFFEREDIO": "1",
            "SLURM_STDOUTMODE": "lost-out.txt",
            "SLURM_STDERRMODE": "lost-err.txt",
            "SLURM_STDINMODE": "none",
            "SLURM_DEBUG": "2",
        },
    ),
}


@pytest.fixture
def environ(slurm_environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return clean_environ(**{**slurm_environment, "SBTRAIN_HOME": str(tmp_path / "home")})


def made(folder: Path, case: Case) -> Path:
    folder.mkdir(parents=True)
    lines = "\n".join(("#SBATCH -Q", *case.lines))
    (folder / "train.py").write_text(TALKS.replace("DIRECTIVES", lines))
    for name in ("in.txt", "in-train.py.txt", "old.txt"):
        (folder / name).write_text(f"first line of {name}\nthe rest")
    return folder


def written(folder: Path, job_id: str) -> dict[str, str]:
    """Every file beside the run folder, by name; with marks for what differs of two jobs."""

    def named(name: str) -> str:
        return re.sub(rf"(?<=-){job_id}(?=[.-])", "JOB", name)

    def told(text: str) -> str:
        return text.replace(str(folder), "FOLDER")

    found = (one for one in folder.iterdir() if one.is_file())
    return {named(one.name): told(one.read_text()) for one in found}


def wait_for(jobs: Sequence[str], client: CommandsClient, slurm: SlurmRun) -> None:
    slurm.wait_for(
        lambda: all(job.over for job in client.jobs_by_id(jobs)), f"the end of {jobs}", 120
    )


def test_files_hold_what_they_hold_with_sbatch(
    tmp_path: Path, environ: dict[str, str], runs: list[SlurmRun]
) -> None:
    client = CommandsClient(environ=environ)
    asked = slurm_run(tmp_path, environ, TALKS, name="unused.py")
    jobs = {}
    for name, case in CASES.items():
        around = {**environ, **(case.environ or {})}
        theirs, ours = (made(tmp_path / way / name, case) for way in ("sbatch", "sbtrain"))
        words = ("--parsable", *ONE_NODE, *case.words)
        one = run_command(("sbatch", *words, "train.py"), timeout_s=60, env=around, cwd=theirs)
        other = sbtrain(*words, *RANKS, "train.py", cwd=ours, environ=around)
        assert (other.returncode, other.stderr) == (0, "")
        jobs[name] = (theirs, one.stdout.strip()), (ours, other.stdout.strip())
    runs += [
        SlurmRun(plan=asked.plan, folder=folder, environment=environ, job_id=job_id)
        for pair in jobs.values()
        for folder, job_id in pair
    ]
    wait_for([run.job_id for run in runs], client, asked)
    for name, (theirs_at, ours_at) in jobs.items():
        assert written(*ours_at) == written(*theirs_at), name


REQUEUED = """#!/usr/bin/env python3
#SBATCH -Q
import os, sys, time

attempt = os.environ.get("SLURM_RESTART_COUNT", "0")
print("out of attempt", attempt, flush=True)
print("err of attempt", attempt, file=sys.stderr, flush=True)
time.sleep(0 if attempt != "0" else 600)
"""
FILES = ("o.txt", "e.txt")
MODES = {
    "append": (("--open-mode=append",), {}),
    "truncate": (("--open-mode=truncate",), {}),
    "by the environment": ((), {"SBATCH_OPEN_MODE": "truncate"}),
    "not said": ((), {}),
}


def test_open_mode_is_sbatchs_and_holds_for_later_attempts(
    tmp_path: Path, environ: dict[str, str], runs: list[SlurmRun]
) -> None:
    client = CommandsClient(environ=environ)
    asked = slurm_run(tmp_path, environ, REQUEUED, name="unused.py")
    for mode, (options, more) in MODES.items():
        for way in ("sbatch", "sbtrain"):
            folder = tmp_path / way / mode
            folder.mkdir(parents=True)
            (folder / "train.py").write_text(REQUEUED)
            for name in FILES:
                (folder / name).write_text("of another job\n")
            words = ("--parsable", *ONE_NODE, "--requeue", "-oo.txt", "-ee.txt", *options)
            around = {**environ, **more}
            if way == "sbatch":
                argv = ("sbatch", *words, "train.py")
                said = run_command(argv, timeout_s=60, env=around, cwd=folder)
            else:
                said = sbtrain(*words, *RANKS, "train.py", cwd=folder, environ=around)
            run = SlurmRun(plan=asked.plan, folder=folder, environment=environ)
            run.job_id = said.stdout.strip()
            runs.append(run)

    def told(run: SlurmRun, name: str) -> str:
        """What the program itself wrote, without Slurm's word on the requeue."""
        lines = (run.folder / name).read_text().splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith(SLURMS_WORDS))

    asked.wait_for(
        lambda: all("of attempt 0" in told(run, name) for run in runs for name in FILES),
        "the first attempts",
        90,
    )
    for run in runs:
        run.slurm(["scontrol", "requeue", run.job_id])
    asked.wait_for(
        lambda: all("of attempt 1" in told(run, name) for run in runs for name in FILES),
        "the second attempts",
        90,
    )
    wait_for([run.job_id for run in runs], client, asked)
    found = {
        (run.folder.parent.name, run.folder.name): [told(run, name) for name in FILES]
        for run in runs
    }
    for mode in ("append", "truncate", "by the environment"):
        assert found["sbtrain", mode] == found["sbatch", mode], mode
    # Where the run comes back and nobody says otherwise, later attempts add to the output.
    assert found["sbtrain", "not said"] == found["sbtrain", "append"]


CRASHES = """
import os, sys

rank = os.environ["SBTRAIN_RANK"]
print(rank, "reads", sys.stdin.read().split(), flush=True)
print(rank, "warns", file=sys.stderr, flush=True)
if rank == os.environ.get("CRASHES"):
    raise RuntimeError(f"rank {rank} cannot go on")
"""


def crashed(
    tmp_path: Path, environment: Mapping[str, str], runs: list[SlurmRun], *, rank: str
) -> tuple[SlurmRun, str, str]:
    """A run on two nodes whose rank has crashed; what its job's two files hold."""
    environment = {**environment, "CRASHES": rank}
    run = slurm_run(tmp_path, environment, CRASHES, partition="standard")
    runs.append(run)
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    run.submit("-Q", f"--error={tmp_path}/job.err", f"--input={tmp_path}/in.txt")
    run.wait_for_state("COMPLETED", "FAILED")
    assert run.shown("ExitCode") == ("1:0" if rank else "0:0"), run.output
    said = (tmp_path / "job.err").read_text()
    return run, run.output, said


def test_every_rank_reads_the_input_and_has_a_log(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    run, out, err = crashed(tmp_path, slurm_environment, runs, rank="")
    assert (out, err) == ("0 reads ['one', 'two']\n", "0 warns\n")
    assert run.log("worker-0") == out
    assert (Path(run.plan.run_dir) / "attempts/0/worker-0.err").read_text() == err
    assert run.log("worker-1") == "1 reads ['one', 'two']\n1 warns\n"


@pytest.mark.parametrize(("rank", "log"), [("0", "worker-0.err"), ("1", "worker-1.log")])
def test_a_traceback_is_in_the_log_and_said_even_where_all_else_is_quiet(
    tmp_path: Path,
    slurm_environment: dict[str, str],
    runs: list[SlurmRun],
    rank: str,
    log: str,
) -> None:
    run, out, err = crashed(tmp_path, slurm_environment, runs, rank=rank)
    assert "sbtrain" not in out
    path = Path(run.plan.run_dir) / "attempts/0" / log
    last = f"RuntimeError: rank {rank} cannot go on"
    assert path.read_text().splitlines()[-1] == last
    ours = [line for line in err.splitlines() if line.startswith("sbtrain: ")]
    assert ours[0].startswith(f"sbtrain: error: worker {rank} on node")
    assert ours[0].endswith("exit status 1")
    assert ours[1] == f"sbtrain: the end of {path}:"
    assert f"sbtrain:     {last}" in ours


def test_what_sbtrain_says_is_on_stderr_in_lines_of_its_own(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    script = "import sys\nprint('out', end='')\nprint('err', end='', file=sys.stderr)\n"
    run = slurm_run(tmp_path, slurm_environment, script, partition="standard")
    runs.append(run)
    run.submit(f"--error={tmp_path}/job.err")
    run.wait_for_state("COMPLETED", "FAILED")
    assert run.output == "out"
    lines = (tmp_path / "job.err").read_text().splitlines()
    assert [line for line in lines if not line.startswith("sbtrain: ")] == ["err"]
    assert len(lines) <= 5
