"""`sbtrain` in front of the real sbatch: what it prints, what it leaves, what then runs."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands import clean_environ, sbtrain, sbtrainctl
from run_folders import unknown_files
from sbtrain.sites.tiers import BY_TIERS, pushing_aside
from sbtrain.slurm.client import JobInfo
from sbtrain.slurm.command_client import CommandsClient
from sbtrain.slurm.token import split_comment
from sbtrain_jobs.process import end_session, run_command, start_process

pytestmark = pytest.mark.slurm

SLEEPS = "#!/bin/sh\nsleep 600\n"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "train.sh").write_text(SLEEPS)
    return tmp_path


@pytest.fixture
def environ(slurm_environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return clean_environ(**{**slurm_environment, "SBTRAIN_HOME": str(tmp_path / "home")})


@pytest.fixture
def slurm(environ: dict[str, str]) -> Iterator[CommandsClient]:
    """A client; the jobs that the test submitted are ended after it."""
    client = CommandsClient(environ=environ)
    before = {job.number for job in client.jobs()}
    yield client
    for job in client.jobs():
        if job.number not in before and not job.over:
            client.cancel(job.submission_id)


def the_job(slurm: CommandsClient, job_id: str) -> JobInfo:
    (job,) = slurm.jobs_by_id([job_id])
    return job


def run_folder(place: Path) -> Path:
    (folder,) = (place / ".sbtrain/runs").iterdir()
    return folder


def own_jobs(slurm: CommandsClient) -> set[int]:
    return {job.number for job in slurm.jobs()}


def submitted_runs(home: Path) -> list[str]:
    """What is there beside what Slurm was asked."""
    found = home.iterdir() if home.is_dir() else ()
    return [path.name for path in found if not path.name.startswith("slurm-")]


def test_stdout_is_sbatchs_and_all_else_is_on_stderr(
    place: Path, environ: dict[str, str], slurm: CommandsClient
) -> None:
    words = ("-N2", "-p", "standard", "--comment", "my own", "--train-steps=5", "train.sh")
    said = sbtrain(*words, cwd=place, environ=environ)
    assert said.returncode == 0, said.stderr
    found = re.fullmatch(r"Submitted batch job (\d+)\n", said.stdout)
    assert found
    folder = run_folder(place)
    assert f"run folder {folder}" in said.stderr
    job = the_job(slurm, found[1])
    assert job.name == "train.sh"
    assert job.requeue is True  # the cluster's own rule
    assert split_comment(job.comment) == ("my own", folder.name)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert (modes["plan.json"], modes["job.sh"], modes["script"]) == (0o600, 0o600, 0o700)
    runs = [json.loads(line) for line in (place / "home/runs.jsonl").read_text().splitlines()]
    assert [(run["run_id"], run["job_id"]) for run in runs] == [(folder.name, found[1])]


def test_parsable_and_quiet(
    place: Path, environ: dict[str, str], slurm: CommandsClient
) -> None:
    words = ("-N1", "-p", "standard", "--train-steps=5", "--hold")
    said = sbtrain("--parsable", *words, "train.sh", cwd=place, environ=environ)
    assert re.fullmatch(r"\d+\n", said.stdout)
    assert the_job(slurm, said.stdout.strip()).reason == "JobHeldUser"
    before = own_jobs(slurm)
    said = sbtrain("-Q", *words, "train.sh", cwd=place, environ=environ)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")
    assert len(own_jobs(slurm) - before) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("--no-such-option",),
        ("--nodelist=nowhere",),
        ("--mem=much",),
        ("--dependency=afterok:none",),
    ],
)
def test_a_refusal_is_sbatchs_own(
    words: tuple[str, ...], place: Path, environ: dict[str, str], slurm: CommandsClient
) -> None:
    own = run_command(
        ["sbatch", *words, "train.sh"], cwd=place, env=environ, timeout_s=120, check="keep"
    )
    assert own.returncode != 0
    before = own_jobs(slurm)
    ours = ("-N1", "-p", "standard", "--train-steps=5")
    said = sbtrain(*ours, *words, "train.sh", cwd=place, environ=environ)
    assert (said.returncode, said.stdout) == (own.returncode, "")
    assert own.stderr.splitlines()[0] in said.stderr
    assert list((place / ".sbtrain/runs").iterdir()) == []
    assert not submitted_runs(place / "home")
    assert own_jobs(slurm) == before


def test_directives_and_environment_reach_the_job(
    place: Path, environ: dict[str, str], slurm: CommandsClient
) -> None:
    (place / "train.sh").write_text(
        '#!/bin/sh\n#SBATCH --job-name="a b" -t 7\n#SBATCH -p standard --hold\n'
        "#SBTRAIN --train-steps=5\n" + "sleep 600\n"
    )
    environ = {**environ, "SBATCH_TIMELIMIT": "9"}
    said = sbtrain("--parsable", "-N", "1-2", "train.sh", cwd=place, environ=environ)
    assert said.returncode == 0, said.stderr
    job = the_job(slurm, said.stdout.strip())
    assert (job.name, job.partition, job.time_limit_s) == ("a b", "standard", 540)
    plan = json.loads((run_folder(place) / "plan.json").read_text())
    assert job.node_count == plan["nodes"]


def test_only_asking_submits_nothing(
    place: Path, environ: dict[str, str], slurm: CommandsClient
) -> None:
    before = own_jobs(slurm)
    words = ("--test-only", "-N1", "-p", "standard", "--train-steps=5", "train.sh")
    said = sbtrain(*words, cwd=place, environ=environ)
    assert (said.returncode, said.stdout) == (0, "")
    assert "the job would start at " in said.stderr
    assert not (place / ".sbtrain").exists()
    assert not submitted_runs(place / "home")
    assert own_jobs(slurm) == before


def test_the_queue_is_reckoned_with(
    place: Path, environ: dict[str, str], slurm: CommandsClient
) -> None:
    """Fewer nodes now where the work is short, more nodes later where it is long."""

    def planned(steps: int) -> int:
        words = ("--train-dry-run", f"--train-steps={steps}", "--train-layout=ps:1")
        words = (*words, "-p", "urgent", "--train-objective=time")
        said = sbtrain(*words, "--train-launch=ranks", "train.sh", cwd=place, environ=environ)
        assert said.returncode == 0, said.stderr
        found = re.search(r"^#SBATCH --nodes=(\d+)$", said.stdout, re.M)
        assert found
        return int(found[1])

    assert planned(1000) == 8
    occupied = ("-p", "standard", "-N4", "--exclusive", "-t", "30", "train.sh")
    run_command(["sbatch", *occupied], cwd=place, env=environ, timeout_s=120)
    deadline = time.monotonic() + 120
    while planned(1000) != 4:
        assert time.monotonic() < deadline
    assert planned(200_000) == 8


def test_waiting_ends_as_the_job_and_the_copy_is_what_runs(
    place: Path, environ: dict[str, str], slurm: CommandsClient
) -> None:
    (place / "beside.py").write_text("STATUS = 7\n")
    (place / "train.py").write_text(
        "import os, sys\nfrom beside import STATUS\n"
        "print('folder', os.environ['SBTRAIN_SCRIPT_DIR'])\n"
        "print('ran', os.path.realpath(__file__), *sys.argv[1:])\n"
        "sys.exit(STATUS)\n"
    )
    words = ("--wait", "-N1", "-p", "standard", "--train-steps=5", "train.py", "--lr", "0.1 0")
    said = sbtrain(*words, cwd=place, environ=environ)
    job_id = said.stdout.split()[-1]
    output = (place / f"slurm-{job_id}.out").read_text()
    assert said.returncode == 7, said.stderr + output
    assert f"folder {place}\n" in output
    assert f"ran {run_folder(place)}/script/train.py --lr 0.1 0\n" in output
    assert the_job(slurm, job_id).exit_code == 7
    status = sbtrainctl("status", job_id, "--json", cwd=place, environ=environ)
    (run,) = json.loads(status.stdout)
    assert (run["state"], run["attempts"][0]["exit_code"]) == ("failed", 7)


@pytest.mark.mpi
def test_every_file_of_a_run_is_on_the_page(
    place: Path, environ: dict[str, str], slurm: CommandsClient
) -> None:
    """And every kind of file that docs/run-folder.md lists is there, but for tasks'."""
    (place / "train.py").write_text(
        "from sbtrain_jobs import join\n"
        "with join() as run:\n"
        "    for step in run.steps(save=lambda to: (to / 'state').write_bytes(b'1')):\n"
        "        pass\n"
        "    run.report(loss=0.5)\n"
    )
    (place / "data").write_bytes(b"1" * 5000)
    words = ("--wait", "-N1", "-p", "standard", "--train-steps=5", "--train-data=data")
    said = sbtrain(*words, "--train-layout=allreduce", "train.py", cwd=place, environ=environ)
    assert said.returncode == 0, said.stderr
    folder = run_folder(place)
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert unknown_files(files) == []
    assert {str(path) for path in files} == {
        *("plan.json", "job.sh", "script/train.py", "ledger.jsonl", "final/result.json"),
        *("checkpoints/step-5/manifest.json", "checkpoints/step-5/state"),
        *(f"attempts/0/{n}" for n in ("timings.h5", "stage.json", "events.jsonl")),
        *("attempts/0/worker-0.log", "attempts/0/bin/scontrol"),
    }


def test_wrap_and_standard_input(
    place: Path, environ: dict[str, str], slurm: CommandsClient
) -> None:
    words = ("-W", "-N1", "-p", "standard", "--train-steps=5", "-o", "out.%j")
    text = "#SBATCH -N2\necho a $SLURM_NNODES"  # sbatch reads no directives there
    said = sbtrain(*words, "--wrap", text, cwd=place, environ=environ)
    job_id = said.stdout.split()[-1]
    assert said.returncode == 0, said.stderr
    assert "a 1\n" in (place / f"out.{job_id}").read_text()
    assert the_job(slurm, job_id).name == "wrap"
    said = sbtrain(*words, cwd=place, environ=environ, stdin="#!/bin/sh\necho b $0\n")
    job_id = said.stdout.split()[-1]
    assert said.returncode == 0, said.stderr
    assert re.search(r"^b /\S+/script/sbatch$", (place / f"out.{job_id}").read_text(), re.M)


def test_tasks_of_an_array_share_nothing(
    place: Path, environ: dict[str, str], slurm: CommandsClient
) -> None:
    (place / "train.sh").write_text("#!/bin/sh\nexit $SLURM_ARRAY_TASK_ID\n")
    words = ("--wait", "--array=0,4", "-N1", "-p", "standard", "--train-steps=5", "train.sh")
    said = sbtrain(*words, cwd=place, environ=environ)
    assert said.returncode == 4, said.stderr
    (run,) = json.loads(sbtrainctl("status", "--json", cwd=place, environ=environ).stdout)
    assert [(tasks["state"], tasks["numbers"]) for tasks in run["tasks"]] == [
        ("failed", "4"),
        ("completed", "0"),
    ]
    said = sbtrainctl("status", "last_4", "--json", cwd=place, environ=environ)
    assert json.loads(said.stdout)[0]["run_dir"] == f"{run['run_dir']}/task-4"
    folder = run_folder(place)
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert Path("task-4/ledger.jsonl") in files
    assert unknown_files(files) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_leaves_no_half_submission(
    how: signal.Signals, place: Path, environ: dict[str, str], slurm: CommandsClient
) -> None:
    """sbatch has handed the job over and not yet said so: the job is ended again."""
    slow = place / "bin/sbatch"
    slow.parent.mkdir()
    real = run_command(["which", "sbatch"], env=environ, timeout_s=60).stdout.strip()
    slow.write_text(f'#!/bin/sh\n"{real}" "$@"\nsleep 60\n')
    slow.chmod(0o700)
    before = own_jobs(slurm)
    process = start_process(
        [
            *(sys.executable, "-m", "sbtrain.commands.submit"),
            *("-N1", "-p", "standard", "--train-steps=5", "train.sh"),
        ],
        cwd=place,
        env={**environ, "PATH": f"{slow.parent}:{environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        deadline = time.monotonic() + 120
        while not own_jobs(slurm) - before:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.kill(process.pid, how)
        out, err = process.communicate(timeout=120)
    finally:
        end_session(process)
    assert (process.returncode, out) == (130, b"")
    assert b"interrupted; nothing was submitted" in err
    (number,) = own_jobs(slurm) - before
    deadline = time.monotonic() + 120
    while not (job := the_job(slurm, str(number))).over:
        assert time.monotonic() < deadline, job
        time.sleep(0.2)
    assert list((place / ".sbtrain/runs").iterdir()) == []
    assert not submitted_runs(place / "home")


@pytest.mark.parametrize("stdout", ["/dev/full", None])
def test_a_stdout_that_takes_nothing_makes_no_failure_of_a_submission(
    stdout: str | None, place: Path, environ: dict[str, str], slurm: CommandsClient
) -> None:
    """sbatch exits with 0 there too: whoever is told of a failure submits again."""
    words = ["--hold", "-N1", "-p", "standard", "--train-steps=5", "train.sh"]
    redirect = f">{stdout}" if stdout else ">&-"
    before = own_jobs(slurm)
    said = run_command(
        [
            *("/bin/bash", "-c", f'exec "$@" {redirect}', "bash"),
            *(sys.executable, "-m", "sbtrain.commands.submit", *words),
        ],
        cwd=place,
        env=environ,
        timeout_s=120,
        check="keep",
    )
    assert said.returncode == 0, said.stderr
    (number,) = own_jobs(slurm) - before
    told = f"cannot write to standard output: No space left on device; it is job {number}\n"
    assert (told in said.stderr) is (stdout is not None)
    (line,) = (place / "home/runs.jsonl").read_text().splitlines()
    assert json.loads(line)["job_id"] == str(number)


def test_inside_a_job_it_warns(
    place: Path, environ: dict[str, str], slurm: CommandsClient
) -> None:
    words = ("--hold", "-N1", "-p", "standard", "--train-steps=5", "train.sh")
    said = sbtrain(*words, cwd=place, environ={**environ, "SLURM_JOB_ID": "12"})
    assert said.returncode == 0
    assert "warning: this is inside job 12" in said.stderr


def test_slurm_itself_says_whose_jobs_push_others_aside(slurm: CommandsClient) -> None:
    assert pushing_aside(slurm.partitions(), BY_TIERS) == {"urgent"}
