"""What `sbtrainctl status` says of ends that a real Slurm makes: while it knows the jobs, and
when it has forgotten them, with and without accounting."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from commands import clean_environ, sbtrain, sbtrainctl
from sbtrain.cluster import PrivateCluster, crash_node, down, up
from sbtrain.cluster.errors import SlurmNotInstalledError
from sbtrain.slurm.command_client import CommandsClient
from sbtrain_jobs.process import run_command

pytestmark = pytest.mark.slurm

TRAIN = """\
import os, sys, time
from sbtrain import join
with join() as run:
    start = run.resume(lambda folder: None)
    for step in run.steps(start=start, save=lambda folder: (folder / "w").touch()):
        time.sleep(0.1)
        if step == int(os.environ.get("FAIL_AT", -1)):
            sys.exit(3)
"""
LONG = "--train-steps=5000"
URGENT = ("sbatch", "--parsable", "--partition=urgent", "--time=1", "--wrap=sleep 1")
# Of each: its state, words of its reason, its causes.
KNOWN = {
    "completed": ("completed", "", ["completed"]),
    "failed": ("failed", r"worker 0 on node c2 ended with exit status 3", ["failed"]),
    "cancelled-waiting": ("cancelled", "", []),
    "cancelled-running": ("cancelled", "", ["cancelled"]),
    "time-limit": ("time-limit", "may not be requeued", ["time-limit"]),
    "preempted-and-back": ("completed", "", ["preempted", "completed"]),
    "preempted": ("preempted", "may not be requeued", ["preempted"]),
    "node-lost": ("node_fail", "attempt 0 left no end: g3 is down", ["end not recorded"]),
    "killed": ("failed", "signal KILL; attempt 0 left no end", ["end not recorded"]),
}
FORGOTTEN = {
    "cancelled-waiting": ("gone-from-queue", "no attempt began", []),
    "node-lost": ("lost", "attempt 0 left no end", ["end not recorded"]),
    "killed": ("lost", "attempt 0 left no end", ["end not recorded"]),
}
REMEMBERED = {"node-lost": ("node_fail", "g3 is down", ["end not recorded"])}


@dataclass(slots=True, kw_only=True)
class Round:
    """The runs of one round, by name."""

    folder: Path
    cluster: PrivateCluster
    jobs: dict[str, str] = field(default_factory=dict)

    @property
    def environ(self) -> dict[str, str]:
        home = {"SBTRAIN_HOME": str(self.folder / "home")}
        return clean_environ(**self.cluster.environment, **home)

    def submit(self, name: str, *words: str, **environ: str) -> None:
        said = sbtrain(
            *("--parsable", "-N1", f"--job-name={name}", *words, "train.py"),
            cwd=self.folder,
            environ={**self.environ, **environ},
        )
        assert said.returncode == 0, said.stderr
        self.jobs[name] = said.stdout.strip()

    def slurm(self, *argv: str) -> str:
        return run_command(list(argv), timeout_s=60, env=self.environ, cwd=self.folder).stdout

    def status(self, name: str) -> dict[str, Any]:
        said = sbtrainctl(
            "status", self.jobs[name], "--json", cwd=self.folder, environ=self.environ
        )
        assert said.returncode == 0, said.stderr
        (status,) = json.loads(said.stdout)
        return dict(status)

    def wait_for(self, true: Callable[[], object], what: str, within_s: float) -> None:
        end_s = time.monotonic() + 3 * within_s
        while not true():
            assert time.monotonic() < end_s, f"{what}: not within {within_s} s"
            time.sleep(1.0)

    def output(self, name: str) -> str:
        said = self.folder / f"slurm-{self.jobs[name]}.out"
        return said.read_text() if said.exists() else ""

    def trains(self, name: str) -> bool:
        """Whether its program counts steps."""
        return "sbtrain: step " in self.output(name)

    def assert_said(self, expected: dict[str, tuple[str, str, list[str]]]) -> None:
        for name, (state, reason, causes) in expected.items():
            status = self.status(name)
            shown = [one["cause"] or "end not recorded" for one in status["attempts"]]
            told = (name, status["state"], shown)
            assert told == (name, state, causes), self.output(name)
            assert re.search(reason, status["reason"]), (name, status["reason"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "accounting", [False, True], ids=["without accounting", "with accounting"]
)
def test_status_and_logs_of_a_round_of_runs(tmp_path: Path, accounting: bool) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    try:
        cluster = up(tmp_path / "cluster", accounting=accounting)
        runs = Round(folder=tmp_path, cluster=cluster)
        end_all(runs)
        runs.assert_said(KNOWN)
        assert_cancelled(runs, by="by you" if accounting else "")
        assert_lists_fit(runs)
        assert_what_they_wrote_is_found(runs)
        forget(runs)
        runs.assert_said(KNOWN | REMEMBERED if accounting else KNOWN | FORGOTTEN)
        # The accounting of 24.11 and 26.05 forgets who it was once slurmctld has started anew.
        keeps = accounting and CommandsClient(environ=runs.environ).version().year < 24
        assert_cancelled(runs, by="by you" if keeps else "")
    except SlurmNotInstalledError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    finally:
        down(tmp_path / "cluster")


def end_all(runs: Round) -> None:
    """Submit every run, and make each end as its name says."""
    runs.submit("completed", "-pstandard", "-wc1", "--train-steps=5")
    runs.submit("failed", "-pstandard", "-wc2", LONG, FAIL_AT="3")
    runs.submit("cancelled-waiting", "-pstandard", "-H", LONG)
    runs.submit("cancelled-running", "-pstandard", "-wc3", LONG)
    runs.submit("time-limit", "-pstandard", "-wc4", "-t2", "--no-requeue", LONG)
    runs.submit("preempted-and-back", "-pspot", "-wg1", "--train-steps=300")
    runs.submit("preempted", "-pspot", "-wg2", "--no-requeue", LONG)
    runs.submit("node-lost", "-pspot", "-wg3", "--no-requeue", LONG)
    runs.submit("killed", "-pspot", "-wg4", LONG)
    runs.slurm("scancel", runs.jobs["cancelled-waiting"])
    for name in ("cancelled-running", "preempted-and-back", "preempted", "node-lost", "killed"):
        runs.wait_for(lambda name=name: runs.trains(name), f"steps of {name}", 60)
    crash_node(runs.cluster.folder, "g3")
    os.kill(batch_process(runs.jobs["killed"]), signal.SIGKILL)
    runs.slurm("scancel", runs.jobs["cancelled-running"])
    for node in ("g1", "g2"):
        runs.slurm(*URGENT, "--exclusive", f"--nodelist={node}")
    for name in KNOWN:
        runs.wait_for(lambda name=name: runs.status(name)["over"], f"the end of {name}", 120)


def batch_process(job_id: str) -> int:
    """The process of a job's batch script on this host."""
    for place in Path("/proc").iterdir():
        with suppress(OSError):
            if not place.name.isdecimal():
                continue
            environ = (place / "environ").read_bytes().split(b"\0")
            wanted = {f"SLURM_JOB_ID={job_id}".encode(), b"SLURM_TASK_PID=%d" % int(place.name)}
            if wanted <= set(environ):
                return int(place.name)
    raise AssertionError(f"job {job_id} has no batch script here")


def forget(runs: Round) -> None:
    """Have slurmctld forget the jobs, as it does past MinJobAge."""
    conf = Path(runs.environ["SLURM_CONF"])
    conf.write_text(conf.read_text().replace("MinJobAge=600", "MinJobAge=2"))
    runs.slurm("scontrol", "reconfigure")
    runs.wait_for(
        lambda: not runs.slurm("squeue", "--noheader", "--states=all"), "forgetting", 130
    )


def assert_cancelled(runs: Round, *, by: str) -> None:
    for name in ("cancelled-waiting", "cancelled-running"):
        assert by in runs.status(name)["reason"]


def assert_lists_fit(runs: Round) -> None:
    for columns in (60, 80, 120):
        said = sbtrainctl(
            "status", cwd=runs.folder, environ={**runs.environ, "COLUMNS": str(columns)}
        )
        assert max(map(len, said.stdout.splitlines())) <= columns
        assert said.stdout.count("-20") >= len(KNOWN)  # each run's id


def assert_what_they_wrote_is_found(runs: Round) -> None:
    for name, words, status in (
        ("completed", "sbtrain: training is complete\n", 0),
        ("failed", "worker 0 on node c2 ended with exit status 3", 0),
        ("cancelled-waiting", f"there is no {runs.folder}/slurm-", 1),
    ):
        for follow in ((), ("-f",)):
            said = sbtrainctl(
                "logs", runs.jobs[name], *follow, cwd=runs.folder, environ=runs.environ
            )
            assert (said.returncode, words in said.stdout + said.stderr) == (status, True)
