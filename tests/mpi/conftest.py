"""Nodes for staging: ranks of one mpiexec, each with a node name and a scratch of its own."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from mpi_environment import environment
from sbtrain_jobs.process import CommandResult, run_command
from sbtrain_staging.reports.run_report import StagingReport, read_report


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes:
    """Starts staging as one rank a node below a folder."""

    folder: Path
    mpiexec: str

    @property
    def template(self) -> str:
        return f"{self.folder}/scratch/%n"

    @property
    def report_path(self) -> Path:
        return self.folder / "stage.json"

    def argv(
        self, count: int, arguments: Sequence[str], *, programs: Mapping[int, Sequence[str]]
    ) -> list[str]:
        """The command that starts `count` ranks; `programs` replaces those of some ranks."""
        argv = [self.mpiexec]
        usual = (sys.executable, "-m", "sbtrain_staging", *arguments)
        for rank in range(count):
            argv += [":"] if rank else []
            argv += ["-n", "1", "-env", "SBTRAIN_NODE_NAME", f"c{rank + 1}"]
            argv += programs.get(rank, usual)
        return argv

    def run_arguments(self, *sources: Path, extra: Sequence[str] = ()) -> list[str]:
        options = ["--to", self.template, "--key", "run-1", "--report", str(self.report_path)]
        return ["run", *options, *extra, *map(str, sources)]

    def try_stage(
        self,
        count: int,
        *sources: Path,
        extra: Sequence[str] = (),
        programs: Mapping[int, Sequence[str]] | None = None,
        timeout_s: float = 120.0,
    ) -> CommandResult:
        arguments = self.run_arguments(*sources, extra=extra)
        argv = self.argv(count, arguments, programs=programs or {})
        return run_command(argv, timeout_s=timeout_s, env=environment(), check="keep")

    def stage(self, count: int, *sources: Path, extra: Sequence[str] = ()) -> StagingReport:
        result = self.try_stage(count, *sources, extra=extra)
        assert result.returncode == 0, result.stderr
        return read_report(self.report_path)

    def cache(self, rank: int) -> Path:
        return self.folder / "scratch" / f"c{rank + 1}" / f"sbtrain-cache-{os.getuid()}"


@pytest.fixture(scope="session")
def mpiexec() -> str:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    found = Path(sys.prefix, "bin", "mpiexec")
    if not found.exists():
        pytest.skip("no mpiexec in this environment: pip install mpich")
    return str(found)


@pytest.fixture
def nodes(tmp_path: Path, mpiexec: str) -> Nodes:
    (tmp_path / "scratch").mkdir()
    return Nodes(folder=tmp_path, mpiexec=mpiexec)
