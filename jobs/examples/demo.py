#!/usr/bin/env python3
"""The whole of sbtrain on one machine, in some minutes: a private Slurm of eight nodes, one
training script under both layouts, a preemption, a resumption, and a better prediction.

    python jobs/examples/demo.py [--folder demo-run] [--keep]

It uses nothing but the commands sbtrain, sbtrainctl and sbatch, so it also shows how to
script them. Ends with a table, and writes FOLDER/summary.json.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from demo_figures import Figures, figures_of, summary_of, table_of
from digits_data import write_digits

from sbtrain.errors import describe
from sbtrain_jobs.process import run_command
from sbtrain_perf.errors import SbtrainError

EXAMPLES = Path(__file__).resolve().parent
MARK = ".sbtrain-demo"
BIN = Path(sys.executable).parent


@dataclass
class Demo:
    """Where the demonstration lives, and the environment of its commands."""

    folder: Path
    cluster: Path
    environment: dict[str, str]
    began: float = field(default_factory=time.monotonic)
    jobs: list[str] = field(default_factory=list)
    shown: dict[str, int] = field(default_factory=dict)

    def say(self, what: str) -> None:
        print(f"[{time.monotonic() - self.began:5.0f} s] {what}", flush=True)

    def run(self, *argv: str, timeout_s: float = 120.0) -> str:
        """Output of one of our commands, which are looked up beside this Python."""
        program = BIN / argv[0]
        words = [str(program) if program.exists() else argv[0], *argv[1:]]
        return run_command(
            words, timeout_s=timeout_s, env=self.environment, cwd=self.folder
        ).stdout

    def submit(self, layout: str, nodes: str, *, steps: int, on: str, step_ms: int = 0) -> str:
        words = [
            "sbtrain",
            "--parsable",
            "--partition=spot",
            f"--nodelist={on}",
            f"--output={self.folder}/job-%j.out",
            f"--train-layout={layout}",
            f"--train-nodes={nodes}",
            f"--train-steps={steps}",
            f"--train-data={self.folder / 'digits.h5'}",
            str(EXAMPLES / "train_digits.py"),
            *(["--min-step-ms", str(step_ms)] if step_ms else []),
        ]
        job = self.run(*words).strip()
        self.jobs.append(job)
        self.say(f"job {job}: {layout} on {nodes} nodes, {steps} steps")
        return job

    def status(self, job: str) -> dict[str, Any]:
        runs: list[dict[str, Any]] = json.loads(self.run("sbtrainctl", "status", job, "--json"))
        return runs[0]

    def follow(self, job: str, *, until_step: int | None = None, limit_s: float = 400) -> None:
        """Show what the job prints, until it ends or has come to a step.

        Raises SbtrainError when it fails or takes too long.
        """
        output = self.folder / f"job-{job}.out"
        deadline, looked = time.monotonic() + limit_s, 0.0
        while time.monotonic() < deadline:
            text = output.read_text(errors="replace") if output.exists() else ""
            for line in text[self.shown.get(job, 0) :].splitlines():
                if line.strip():
                    self.say(f"  job {job} | {line}")
            self.shown[job] = len(text)
            if until_step is not None and f"step {until_step} of" in text:
                return
            if time.monotonic() - looked > 3:
                looked = time.monotonic()
                state = self.status(job)["state"]
                if state == "completed":
                    return
                if state in ("failed", "cancelled", "timeout", "node_fail", "out_of_memory"):
                    raise SbtrainError(f"job {job} ended: {state}", hint=f"read {output}")
            time.sleep(0.5)
        raise SbtrainError(f"job {job} took more than {limit_s:.0f} s", hint=f"read {output}")


def main() -> int:
    first = __doc__.partition("\n\n")[0]
    parser = argparse.ArgumentParser(description=first, allow_abbrev=False)
    for name, default, what in (
        ("--folder", "demo-run", "runs and what they leave; made anew"),
        ("--cluster", ".sbtrain/cluster", "the private Slurm"),
    ):
        shown = f"folder of {what} (default: {default})"
        parser.add_argument(name, type=Path, default=Path(default), metavar="DIR", help=shown)
    parser.add_argument("--keep", action="store_true", help="leave the private Slurm running")
    options = parser.parse_args()
    try:
        return demonstrate(options.folder.absolute(), options.cluster.absolute(), options.keep)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    except SbtrainError as error:
        print(f"demo: {describe(error)}", file=sys.stderr)
        return error.exit_code


def demonstrate(folder: Path, cluster: Path, keep: bool) -> int:
    fresh_folder(folder)
    demo = Demo(
        folder=folder,
        cluster=cluster,
        environment={**os.environ, "SBTRAIN_HOME": str(folder / "home")},
    )
    beside_us = Path(sys.executable).parent  # where what the scripts import is installed
    demo.environment["PATH"] = f"{beside_us}{os.pathsep}{os.environ['PATH']}"
    for name in ("SBTRAIN_SITE", "SLURM_CONF"):
        demo.environment.pop(name, None)
    at = f"--folder={cluster}"
    demo.say("starting a private Slurm of eight nodes")
    demo.run("sbtrainctl", "cluster", "up", at)
    try:
        demo.environment |= json.loads(demo.run("sbtrainctl", "cluster", "env", at, "--json"))
        figures = train(demo)
    except BaseException:
        for job in demo.jobs:
            run_command(["scancel", job], timeout_s=20, env=demo.environment, check="keep")
        raise
    finally:
        if keep:
            demo.say(f"Slurm keeps running; to end it: sbtrainctl cluster down {at}")
        else:
            demo.run("sbtrainctl", "cluster", "down", at)
    summary = summary_of(figures, seconds=time.monotonic() - demo.began)
    target = folder / "summary.json"
    target.write_text(json.dumps(summary, indent=2) + "\n")
    print("\n" + table_of(figures, summary))
    print(f"\n{target}")
    wrong = [name for name, held in summary["checks"].items() if not held]
    for name in wrong:
        print(f"demo: not as it should be: {name}", file=sys.stderr)
    return 1 if wrong else 0


def train(demo: Demo) -> list[Figures]:
    """Four runs: both layouts before the model has learnt, and both after."""
    demo.run(sys.executable, str(EXAMPLES / "digits_data.py"), str(demo.folder / "digits.h5"))
    first = demo.submit("ps", "3", steps=400, on="c[1-3]")
    demo.follow(first)

    second = demo.submit("allreduce", "2", steps=400, on="g[1-2]", step_ms=40)
    demo.follow(second, until_step=100)
    demo.say("an urgent job asks for all nodes: Slurm preempts the training")
    urgent = demo.run(
        "sbatch",
        "--parsable",
        "--partition=urgent",
        "--nodes=8",
        "--exclusive",
        f"--output={demo.folder}/urgent.out",
        "--wrap=sleep 5",
    ).strip()
    demo.jobs.append(urgent)
    demo.follow(second)

    demo.say("what was learnt from both runs, as they ended")
    print(demo.run("sbtrainctl", "refit"), flush=True)
    third = demo.submit("ps", "3", steps=400, on="c[1-3]")
    demo.follow(third)
    fourth = demo.submit("allreduce", "2", steps=400, on="g[1-2]", step_ms=40)
    demo.follow(fourth)
    return [figures_of(demo.status(job)) for job in (first, second, third, fourth)]


def write_data(target: Path) -> None:
    """The digits, marked with the time: a new content, so that no node has it in its cache."""
    import h5py

    write_digits(target)
    with h5py.File(target, "a") as file:
        file.attrs["written"] = time.time()


def fresh_folder(folder: Path) -> None:
    """An empty folder; what an earlier demonstration left there goes."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARK).exists():
            raise SbtrainError(
                f"{folder} is not empty and not of an earlier demonstration",
                hint="name another with --folder",
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARK).touch()


if __name__ == "__main__":
    sys.exit(main())
