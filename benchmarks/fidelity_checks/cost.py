"""What sbtrain in front of sbatch costs: CPU time, and questions to slurmctld."""

from __future__ import annotations

import os
import re
import statistics
import subprocess

from bench_table import BenchRow

from fidelity_checks.place import Place

RUNS = 20
SUBMISSIONS = 100
# What slurmctld gets without anybody's asking, and sdiag's own question.
_OTHERS = ("REQUEST_STATS_INFO", "MESSAGE_NODE_REGISTRATION_STATUS", "REQUEST_STATS_RESET")


def cost_rows(place: Place) -> list[BenchRow]:
    place.partitions("DOWN")
    python = str(place.sbtrain.with_name("python"))
    held = ("-H", "--wrap=true")
    rounds = [
        [
            _cpu_ms(place, python, "-c", "import argparse"),
            _cpu_ms(place, str(place.sbtrain), *held),
            _cpu_ms(place, str(place.sbatch), *held),
        ]
        for _ in range(RUNS + 1)
    ][1:]
    bare_ms, ours_ms, sbatch_ms = map(statistics.median, zip(*rounds, strict=True))
    rows = [
        BenchRow(
            what="CPU of sbtrain, sbatch's included, / bare Python with argparse",
            yardstick=f"{bare_ms:.1f} ms; sbatch alone {sbatch_ms:.1f} ms",
            value=ours_ms / bare_ms,
            bar=2.5,
        ),
        *_asked_rows(place, "none", *held),
    ]
    planning = place.that_plans()
    script = place.folder / "cost.sh"
    script.write_text("#!/bin/sh\nsrun true\n")
    for way in ("script", "ranks"):
        words = ("-H", f"--train-launch={way}", "--train-steps=5000", "--train-nodes=1-4")
        rows += _asked_rows(planning, way, *words, str(script))
    place.cancel_all()
    place.partitions("UP")
    return rows


def _asked_rows(place: Place, way: str, *words: str) -> list[BenchRow]:
    """What slurmctld is asked, once a first submission has asked for what is kept."""
    place.slurm(str(place.sbtrain), *words)
    begin = _next_id(place)
    place.slurm("sdiag", "-r")
    for _ in range(SUBMISSIONS):
        place.slurm(str(place.sbtrain), *words)
    counted = re.findall(r"^\s+([A-Z_]+)\s+\(\s*\d+\) count:(\d+)", place.slurm("sdiag"), re.M)
    questions = {name: int(count) for name, count in counted if name not in _OTHERS}
    spent = _next_id(place) - begin - 1
    return [
        BenchRow(
            what=f"questions to slurmctld a submission, in the way `{way}`",
            yardstick=" ".join(f"{name}: {count}" for name, count in questions.items()),
            value=sum(questions.values()) / SUBMISSIONS,
            bar=2,
        ),
        BenchRow(
            what="job ids spent a submission",
            yardstick="sbatch: 1",
            value=spent / SUBMISSIONS,
            bar=1,
        ),
    ]


def _next_id(place: Place) -> int:
    return int(place.slurm(str(place.sbatch), "--parsable", "-H", "--wrap=true"))


def _cpu_ms(place: Place, *argv: str) -> float:
    process = subprocess.Popen(
        argv, env=dict(place.environ), stdout=subprocess.DEVNULL, cwd=place.folder
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv} failed with {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1000
