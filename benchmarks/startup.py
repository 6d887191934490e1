"""What `sbtrain` costs before sbatch: CPU time of its help, imports, time of a submission.

CPU time is user and system time of a fresh process, median of 20, the two programs of a
ratio by turns in one run. The yardstick is a bare Python of the same environment that
imports argparse. Where a Slurm answers, a held job is submitted by sbtrain and by sbatch,
and the difference of the wall times is shown; it has no bar.

Prints a table, writes build/bench-startup.json, exits 1 where a bar is missed.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAR_RATIO = 2.5
RUNS = 20
SUBMISSIONS = 7
HEAVY = ("numpy", "h5py", "sklearn", "tensorflow", "mpi4py", "pyslurm")
BIN = Path(sys.executable).parent

Row = dict[str, str | float | bool | None]


def cpu_ms(argv: list[str]) -> float:
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv} failed with {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1000


def by_turns(*programs: list[str]) -> list[float]:
    """Median CPU time of each program; the first round warms the file cache."""
    rounds = [[cpu_ms(argv) for argv in programs] for _ in range(RUNS + 1)][1:]
    return [statistics.median(times) for times in zip(*rounds, strict=True)]


def help_rows() -> list[Row]:
    bare_ms, help_ms, ctl_ms = by_turns(
        [sys.executable, "-c", "import argparse"],
        [str(BIN / "sbtrain"), "--help"],
        [str(BIN / "sbtrainctl"), "--help"],
    )
    yardstick = f"import argparse {bare_ms:.1f} ms"
    rows: list[Row] = [
        row("sbtrain --help, CPU time, ratio", yardstick, help_ms / bare_ms, BAR_RATIO),
        row("sbtrainctl --help, CPU time, ratio", yardstick, ctl_ms / bare_ms, None),
    ]
    code = (
        "import sys\nfrom sbtrain.commands.submit import run\n"
        "run(['--help'], {})\nsys.stderr.write(' '.join(sys.modules))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    modules = set(said.stderr.split())
    if said.returncode or "sbtrain.options.flag_table" not in modules:
        raise SystemExit(f"sbtrain --help failed: {said.stderr}")
    heavy = len(modules & set(HEAVY))
    rows.append(row("heavy packages that sbtrain --help imports", "none", heavy, 0))
    return rows


def plan_row() -> Row:
    """Everything but the hand-over: site file, plan, job script; numpy is in it."""
    with tempfile.TemporaryDirectory(prefix="sbtrain-bench-") as folder:
        script = Path(folder, "train.sh")
        script.write_text("#!/bin/sh\n")
        words = ["--train-dry-run", "--train-steps=100", "-N2"]
        numpy_ms, plan_ms = by_turns(
            [sys.executable, "-c", "import numpy"],
            [str(BIN / "sbtrain"), "--train-site=generic", *words, str(script)],
        )
    yardstick = f"import numpy {numpy_ms:.0f} ms"
    return row("sbtrain --train-dry-run, ms of CPU time", yardstick, plan_ms, None)


def slurm_answers() -> bool:
    if shutil.which("sbatch") is None:
        return False
    try:
        said = subprocess.run(
            ["sinfo", "--noheader"], capture_output=True, timeout=20, check=False
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return said.returncode == 0


def submission_rows() -> list[Row]:
    """Wall time of sbtrain less that of sbatch, each handing over one held job."""
    with tempfile.TemporaryDirectory(prefix="sbtrain-bench-", dir=Path.cwd()) as folder:
        script = Path(folder, "train.sh")
        script.write_text("#!/bin/sh\n")
        environ = {**os.environ, "SBTRAIN_HOME": f"{folder}/home"}
        common = ["--parsable", "--hold", "--nodes=1", "--time=60"]
        ours = [str(BIN / "sbtrain"), *common, "--train-steps=100", "train.sh"]
        sbatch = ["sbatch", *common, "train.sh"]

        def wall_ms(argv: list[str]) -> float:
            begin = time.perf_counter()
            said = subprocess.run(
                argv, capture_output=True, text=True, cwd=folder, env=environ, check=True
            )
            passed = time.perf_counter() - begin
            subprocess.run(["scancel", said.stdout.strip()], check=True)
            return passed * 1000

        rounds = [(wall_ms(ours), wall_ms(sbatch)) for _ in range(SUBMISSIONS + 1)][1:]
    own_ms, sbatch_ms = (statistics.median(times) for times in zip(*rounds, strict=True))
    yardstick = f"sbatch {sbatch_ms:.0f} ms"
    return [
        row("time in front of sbatch, ms of wall time", yardstick, own_ms - sbatch_ms, None)
    ]


def row(what: str, yardstick: str, value: float, bar: float | None) -> Row:
    met = bar is None or value <= bar
    return {
        "what": what,
        "yardstick": yardstick,
        "value": round(value, 2),
        "bar": bar,
        "met": met,
    }


def main() -> int:
    rows = [*help_rows(), plan_row()]
    if slurm_answers():
        rows += submission_rows()
    else:
        print("no Slurm answers: the time of a submission is left out")
    print(f"{'what':44} {'yardstick':>24} {'value':>8} {'bar':>6}  met")
    for one in rows:
        bar = "-" if one["bar"] is None else one["bar"]
        met = "yes" if one["met"] else "NO"
        print(f"{one['what']:44} {one['yardstick']:>24} {one['value']:8} {bar:>6}  {met}")
    build = Path(__file__).resolve().parents[1] / "build"
    build.mkdir(exist_ok=True)
    (build / "bench-startup.json").write_text(json.dumps(rows, indent=2) + "\n")
    return 0 if all(one["met"] for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
