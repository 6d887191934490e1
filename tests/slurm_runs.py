"""Runs submitted to a real Slurm: a plan that the test made, all else as `sbtrain` does it, and
what Slurm and the run folder tell of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from plans import example_plan
from sbtrain.options.argv import split_command_line
from sbtrain.options.directives import read_directives
from sbtrain.options.flag_table import FLAGS
from sbtrain.options.flags import read_flags
from sbtrain.options.script import Script
from sbtrain.slurm.client import SlurmVersion, Submission
from sbtrain.slurm.command_client import CommandsClient
from sbtrain.submission.additions import Additions, additions, with_options
from sbtrain.submission.asked import ask
from sbtrain.submission.job_script import JobScript, job_script
from sbtrain.submission.run_files import placed, write_run_folder
from sbtrain_jobs.process import run_command
from sbtrain_jobs.record.ledger import AttemptRecord, Ledger, attempts
from sbtrain_jobs.run_folder import RunFolder
from sbtrain_perf.request import DataSet, Plan

# How lines begin that Slurm writes into a job's output; 26.05 puts the time first.
SLURMS_WORDS = ("slurmstepd", "srun", "[20")


@dataclass(slots=True, kw_only=True)
class SlurmRun:
    """One run, submitted or about to be."""

    plan: Plan
    folder: Path
    environment: Mapping[str, str]
    job_id: str = ""

    def submit(
        self,
        *options: str,
        nodelist: str = "",
        behind: Sequence[str] = (),
        not_added: str = "",
    ) -> str:
        """Hand the plan over as `sbtrain` does.

        Args:
            options: what the user says to sbatch.
            behind: sbatch's last words, against which sbtrain's own do not count.
            not_added: an option that sbtrain would add and that is left out.
        """
        words = [f"--partition={self.plan.partition}", f"--output={self.folder}/job.out"]
        words += [f"--nodelist={nodelist}"] if nodelist else []
        words += options or ("--signal=B:USR1@60", "--time=10")
        path = Path(self.plan.script)
        script = Script(
            name=path.name, folder=path.parent, content=path.read_bytes(), shown=path.name
        )
        line = split_command_line([*words, script.name, *self.plan.script_args], FLAGS)
        found = read_directives(script.text, file=script.shown, train_flags=FLAGS)
        said = read_flags(line.train, found.train)
        asked = ask(
            line,
            said,
            script,
            found,
            cwd=self.folder,
            environ={},
            launch=self.plan.launch,
        )
        added = additions(asked, self.plan)
        if not_added:
            kept = [one for one in added.each if not one.word.startswith(f"{not_added}=")]
            added = Additions(each=tuple(kept))
        plan = placed(self.plan, script, now=datetime.now(UTC))
        self.plan = with_options(asked, plan, added)
        parts = JobScript(
            directives=added.directives,
            user_lines=found.kept_lines,
            python=sys.executable,
            script_dir=str(script.folder),
            plan_path=str(RunFolder.of(self.plan).plan),
        )
        job_path = write_run_folder(
            self.plan, script=script, job_text=job_script(self.plan, parts)
        )
        submission = Submission(
            options=(*asked.sbatch_words, *added.words, *behind),
            script=job_path,
            token=self.plan.run_id,
            working_dir=self.folder,
        )
        client = CommandsClient(environ=self.environ)
        self.job_id = client.submit(submission).job_id
        return self.job_id

    @property
    def environ(self) -> dict[str, str]:
        """That of a user whose virtual environment is ours."""
        found = {**os.environ, "VIRTUAL_ENV": sys.prefix, **self.environment}
        return {**found, "PATH": f"{sys.prefix}/bin:{found['PATH']}"}

    def slurm(self, argv: list[str]) -> str:
        return run_command(argv, timeout_s=120, env=self.environ, cwd=self.folder).stdout

    def shown(self, field: str, job_id: str = "") -> str:
        """A field of scontrol show job."""
        words = self.shown_whole(job_id).split()
        return next(word.partition("=")[2] for word in words if word.startswith(f"{field}="))

    def shown_whole(self, job_id: str = "") -> str:
        return self.slurm(["scontrol", "show", "job", "-o", job_id or self.job_id])

    @property
    def version(self) -> SlurmVersion:
        return CommandsClient(environ={**os.environ, **self.environment}).version()

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
        """within_s: on a quiet machine; a busy one gets three times as long."""
        end_s = time.monotonic() + 3 * within_s
        while not true():
            assert time.monotonic() < end_s, (
                f"{what}: not within {within_s} s\n{self.output}\n{self.shown_whole()}"
            )
            time.sleep(0.2)

    def wait_for_state(self, *states: str, within_s: float = 60.0) -> None:
        self.wait_for(lambda: self.state in states, f"job {self.job_id} {states}", within_s)

    def wait_for_steps(self, *, attempt: int = 0, within_s: float = 60.0) -> None:
        """Of every process that counts steps."""
        roles = ["chief-0"]
        if self.plan.layout == "allreduce":
            roles = [f"worker-{index}" for index in range(self.plan.workers)]
        self.wait_for(
            lambda: all("starts after step" in self.log(one, attempt=attempt) for one in roles),
            f"steps of attempt {attempt}",
            within_s,
        )

    def cancel(self) -> None:
        if self.job_id:
            self.slurm(["scancel", self.job_id])
            self.wait_for_state(
                "CANCELLED", "COMPLETED", "FAILED", "TIMEOUT", "PREEMPTED", within_s=40
            )

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
    )
    return SlurmRun(plan=replace(plan, **changes), folder=folder, environment=environment)


def preemptor(run: SlurmRun, nodelist: str, *, seconds: int = 2) -> str:
    """A job of higher priority that needs these nodes."""
    count = len(nodelist.split(","))
    argv = [
        *("sbatch", "--parsable", "--partition=urgent", "--exclusive", f"--nodes={count}"),
        *(f"--nodelist={nodelist}", "--time=1", f"--output={run.folder}/urgent.out"),
        f"--wrap=sleep {seconds}",
    ]
    return run.slurm(argv).strip()
