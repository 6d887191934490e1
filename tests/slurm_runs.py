"""Runs submitted to a real Slurm: a plan, a job script as sbtrain writes it, and what Slurm
and the run folder tell of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from plans import example_plan
from sbtrain_jobs.process import run_command
from sbtrain_jobs.record.ledger import AttemptRecord, Ledger, attempts
from sbtrain_jobs.run_folder import RunFolder
from sbtrain_perf.codec import plan_to_json
from sbtrain_perf.request import DataSet, Plan

SCRIPT = """#!/bin/bash
trap '' {signal}
exec "{python}" -P -m sbtrain.commands.batch "{plan}"
"""


@dataclass(slots=True, kw_only=True)
class SlurmRun:
    """One run, submitted or about to be."""

    plan: Plan
    folder: Path
    environment: Mapping[str, str]
    job_id: str = ""

    def submit(self, *options: str, nodelist: str = "") -> str:
        plan_path = Path(self.plan.run_dir) / "plan.json"
        plan_path.write_text(plan_to_json(self.plan))
        script = self.folder / "job.sh"
        script.write_text(
            SCRIPT.format(
                python=sys.executable, plan=plan_path, signal=self.plan.preemption_signal
            )
        )
        argv = [
            *("sbatch", "--parsable", f"--partition={self.plan.partition}"),
            *(f"--nodes={self.plan.nodes}", "--ntasks-per-node=1", "--exclusive"),
            *("--requeue", "--open-mode=append", f"--output={self.folder}/job.out"),
            *([f"--nodelist={nodelist}"] if nodelist else []),
            *(options or ("--signal=B:USR1@60", "--time=10")),
            str(script),
        ]
        self.job_id = self.slurm(argv).strip()
        return self.job_id

    def slurm(self, argv: list[str]) -> str:
        env = {**os.environ, **self.environment}
        return run_command(argv, timeout_s=30, env=env, cwd=self.folder).stdout

    def shown(self, field: str, job_id: str = "") -> str:
        """A field of scontrol show job."""
        text = self.slurm(["scontrol", "show", "job", "-o", job_id or self.job_id])
        return next(
            word.partition("=")[2] for word in text.split() if word.startswith(f"{field}=")
        )

    @property
    def state(self) -> str:
        return self.shown("JobState")

    @property
    def output(self) -> str:
        path = self.folder / "job.out"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def attempts(self) -> tuple[AttemptRecord, ...]:
        return attempts(Ledger(RunFolder(path=Path(self.plan.run_dir)).ledger).entries())

    def log(self, role: str, *, attempt: int = 0) -> str:
        path = Path(self.plan.run_dir) / "attempts" / str(attempt) / f"{role}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_for(self, true: Callable[[], object], what: str, within_s: float = 60.0) -> None:
        end_s = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < end_s, f"{what}: not within {within_s} s\n{self.output}"
            time.sleep(0.2)

    def wait_for_state(self, *states: str, within_s: float = 60.0) -> None:
        self.wait_for(lambda: self.state in states, f"job {self.job_id} {states}", within_s)

    def wait_for_steps(self, *, attempt: int = 0, within_s: float = 60.0) -> None:
        role = "chief-0" if self.plan.layout == "ps" else "worker-0"
        self.wait_for(
            lambda: "starts after step" in self.log(role, attempt=attempt),
            f"steps of attempt {attempt}",
            within_s,
        )

    def cancel(self) -> None:
        if self.job_id:
            self.slurm(["scancel", self.job_id])
            self.wait_for_state("CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", within_s=40)

    @property
    def saved_steps(self) -> list[int]:
        found = Path(self.plan.checkpoint_dir).rglob("step-*")
        return sorted(int(path.name.removeprefix("step-")) for path in found)


def slurm_run(
    folder: Path,
    environment: Mapping[str, str],
    script: str,
    *,
    step_s: float = 0.05,
    name: str = "train.py",
    **changes: object,
) -> SlurmRun:
    """A run of `script` on two nodes of the private cluster."""
    run_dir = folder / "run"
    run_dir.mkdir()
    path = folder / name
    path.write_text(script.replace("STEP_S", str(step_s)))
    plan = replace(
        example_plan(),
        run_id=folder.name,
        run_dir=str(run_dir),
        script=str(path),
        data=DataSet(),
        scratch_path=None,
        checkpoint_dir=str(run_dir / "checkpoints"),
        checkpoint_interval_s=3600.0,
        sbatch_options=("--signal=B:USR1@60",),
    )
    return SlurmRun(plan=replace(plan, **changes), folder=folder, environment=environment)
