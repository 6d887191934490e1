"""What the staging benchmark is made of: rows of its table, data sets, runs of staging."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from staging_room import MPI_OVER_TCP, Room

from sbtrain_jobs.process import run_command
from sbtrain_staging.reports.run_report import StagingReport, read_report

MPIEXEC = Path(sys.prefix, "bin", "mpiexec")
MIB = 1 << 20
SEED = 1
LIMIT_S = 900.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure; met is None where it could not be measured, or no bar is set."""

    what: str
    yardstick: str
    value: float | None
    bar: str
    met: bool | None
    note: str = ""


@dataclass(slots=True)
class Bench:
    """Where a run works, and what it found so far."""

    work: Path
    scratch: Path
    quick: bool
    rows: list[Row] = field(default_factory=list)
    peaks: list[int] = field(default_factory=list)
    read_ratios: list[float] = field(default_factory=list)

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def add(
        self, what: str, yardstick: str, value: float, *, most: float | None = None,
        least: float | None = None, note: str = "",
    ) -> None:  # fmt: skip
        bar = f"<= {most:g}" if most is not None else f">= {least:g}"
        met = bool(value <= most if most is not None else value >= (least or 0.0))
        self.rows.append(
            Row(what=what, yardstick=yardstick, value=float(value), bar=bar, met=met, note=note)
        )
        say(f"{what}: {value:.4g} (bar {bar}) {note}")

    def tell(self, what: str, yardstick: str, value: float, *, note: str = "") -> None:
        """A figure that is shown without a bar."""
        self.rows.append(
            Row(what=what, yardstick=yardstick, value=value, bar="-", met=None, note=note)
        )
        say(f"{what}: {value:.4g} {note}")

    def skip(self, what: str, bar: str, why: str) -> None:
        self.rows.append(Row(what=what, yardstick="", value=None, bar=bar, met=None, note=why))
        say(f"{what}: skipped, {why}")

    def fail(self, what: str, why: str) -> None:
        self.rows.append(
            Row(what=what, yardstick="", value=None, bar="runs", met=False, note=why)
        )
        say(f"{what}: failed, {why}")

    def fresh(self) -> Path:
        """An empty scratch for all nodes."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        self.scratch.mkdir()
        return self.scratch

    def argv(
        self, nodes: int, source: str, *, room: Room | None = None, extra: Sequence[str] = ()
    ) -> list[str]:
        """Staging on some nodes; {mount} in the source is a node's own view of the server."""
        options = ["--to", f"{self.scratch}/%n", "--key", "bench", "--report"]
        options += [str(self.work / "stage.json"), *extra]
        argv = [str(MPIEXEC)]
        for node in range(nodes):
            argv += [":"] if node else []
            argv += ["-n", "1", "-env", "SBTRAIN_NODE_NAME", f"n{node + 1}"]
            mount = ""
            if room is not None:
                argv += room.inside(node)
                mount = str(room.mounts[node]) if room.mounts else ""
            argv += [sys.executable, "-m", "sbtrain_staging", "run", *options]
            argv += [source.replace("{mount}", mount)]
        return argv

    def stage(
        self,
        nodes: int,
        source: str,
        *,
        room: Room | None = None,
        keep: bool = False,
        share: str = "never",
    ) -> StagingReport:
        """Stage once. `share` "auto" lets nodes link to each other's files, for all of them
        are on one filesystem here; "never" has them move the data, as between hosts."""
        if not keep:
            self.fresh()
        environment = {**os.environ, **(MPI_OVER_TCP if room is not None else {})}
        argv = self.argv(nodes, source, room=room, extra=("--share", share))
        run_command(argv, timeout_s=LIMIT_S, env=environment)
        report = read_report(self.work / "stage.json")
        self.peaks += [node.peak_memory_bytes for node in report.nodes]
        if not keep:
            self.read_ratios.append(report.source_bytes_read / report.dataset_bytes)
        return report


def say(line: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {line}", file=sys.stderr, flush=True)


def make_file(path: Path, size_bytes: int) -> Path:
    block = random.Random(SEED).randbytes(MIB)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as stream:
        for start in range(0, size_bytes, MIB):
            stream.write(block[: min(MIB, size_bytes - start)])
    return path


def make_tree(root: Path, files: int, size_bytes: int) -> Path:
    block = random.Random(SEED).randbytes(size_bytes + files)
    for number in range(files):
        folder = root / f"{number % 100:02}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:06}.jpg").write_bytes(block[number : number + size_bytes])
    return root


def table(rows: Sequence[Row]) -> str:
    cells = [("what", "yardstick", "value", "bar", "met")]
    for row in rows:
        value = "-" if row.value is None else f"{row.value:.4g}"
        unmet = "skipped" if row.value is None else "-"
        met = unmet if row.met is None else "yes" if row.met else "NO"
        cells.append((row.what, row.yardstick, value, row.bar, met))
    widths = [max(len(cell[column]) for cell in cells) for column in range(5)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(cell, widths, strict=True)).rstrip()
        for cell in cells
    )
