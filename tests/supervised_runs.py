"""Attempts under the real supervisor and real agents on this host, with a stand-in srun."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from plans import example_plan
from preloaded import Forked, ours_preloaded
from sbtrain_jobs.process import start_process
from sbtrain_jobs.record.ledger import LedgerEntry, read_ledger
from sbtrain_perf.codec import plan_to_json
from sbtrain_perf.request import DataSet, Plan

FAKES = Path(__file__).parent / "fakes"
WITHIN_S = 120.0


@dataclass(slots=True, kw_only=True)
class SupervisedRun:
    """A plan in a folder of its own, and the attempt that runs on it."""

    folder: Path
    plan: Plan
    environ: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | Forked | None = None
    stdin: int = subprocess.DEVNULL
    descriptors: tuple[int, ...] = ()  # that it inherits

    @property
    def run_dir(self) -> Path:
        return Path(self.plan.run_dir)

    def start(self, *, restart_count: int = 0, plan_path: Path | None = None) -> None:
        binaries = self.folder / "bin"
        binaries.mkdir(exist_ok=True)
        srun = binaries / "srun"
        srun.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKES / "srun.py"} "$@"\n')
        srun.chmod(0o755)
        plan_path = plan_path or self.run_dir / "plan.json"
        plan_path.write_text(plan_to_json(self.plan))
        names = ",".join(f"c{n + 1}" for n in range(self.plan.nodes))
        self.environ = {
            "SLURM_JOB_ID": "7",
            "SLURM_JOB_NODELIST": names,
            "VIRTUAL_ENV": sys.prefix,
            "FAKE_SRUN_PIDS": str(self.folder),
            **self.environ,
        }
        if restart_count:
            self.environ["SLURM_RESTART_COUNT"] = str(restart_count)
        path = f"{binaries}{os.pathsep}{os.environ['PATH']}"
        program, words = FAKES / "supervised.py", (str(plan_path), str(self.folder))
        environ = {**os.environ, "PATH": path, **self.environ}
        with (self.folder / "job.out").open("ab") as output:
            if self.plan.launch == "ranks":  # a script gets what its process started with
                self.process = ours_preloaded().start(
                    program, *words, env=environ, output=output.fileno()
                )
                return
            self.process = start_process(
                [sys.executable, str(program), *words],
                env=environ,
                stdin=self.stdin,
                stdout=output,
                stderr=output,
                pass_fds=self.descriptors,
            )

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, within_s: float = WITHIN_S) -> int:
        assert self.process is not None
        return self.process.wait(within_s)

    def stop(self) -> None:
        """End whatever a test left, what runs in sessions of its own too, as slurmd would."""
        if self.process is not None:
            below = descendants(self.process.pid)
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            for pid in below:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def task_pid(self, task: int) -> int:
        return int((self.folder / f"task-{task}.pid").read_text())

    def say_cause(self, cause: str) -> None:
        (self.folder / "cause").write_text(cause)

    @property
    def output(self) -> str:
        return (self.folder / "job.out").read_text(errors="replace")

    def log(self, role: str, *, attempt: int = 0) -> str:
        path = self.run_dir / "attempts" / str(attempt) / f"{role}.log"
        return path.read_text() if path.exists() else ""

    def wait_for(self, true: Callable[[], object], within_s: float = WITHIN_S) -> None:
        end_s = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < end_s, self.output
            assert self.process is None or self.process.poll() is None, self.output
            time.sleep(0.05)

    @property
    def requeues(self) -> list[str]:
        path = self.folder / "requeues"
        return path.read_text().split() if path.exists() else []

    @property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        return read_ledger(self.run_dir / "ledger.jsonl")

    def events(self) -> list[str]:
        return [entry.event for entry in self.ledger]

    def last(self, event: str) -> LedgerEntry:
        return [entry for entry in self.ledger if entry.event == event][-1]

    @property
    def saved_steps(self) -> list[int]:
        found = self.run_dir.rglob("checkpoints/**/step-*")
        return sorted(int(path.name.removeprefix("step-")) for path in found)

    def result(self) -> Mapping[str, float]:
        found: dict[str, float] = json.loads(
            (self.run_dir / "final" / "result.json").read_text()
        )
        return found


def supervised_run(
    folder: Path,
    script: str,
    *,
    step_s: float = 0.05,
    name: str = "train.py",
    **changes: object,
) -> SupervisedRun:
    """A run of `script` on two nodes, ready to start."""
    run_dir = folder / "run"
    run_dir.mkdir()
    path = folder / name
    path.write_text(script.replace("STEP_S", str(step_s)))
    values: dict[str, object] = {
        "run_id": "run",
        "run_dir": str(run_dir),
        "script": str(path),
        "data": DataSet(),
        "scratch_path": None,
        "checkpoint_dir": str(run_dir / "checkpoints"),
        "checkpoint_interval_s": 3600.0,
        "steps": 20,
        "grace_s": 10.0,
        **changes,
    }
    return SupervisedRun(folder=folder, plan=example_plan(**values))


def descendants(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry.name), *descendants(int(entry.name))]
    return found
