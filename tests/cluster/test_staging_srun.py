"""Staging under a real srun: one rank a node, and a launch that is not MPI's is refused."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from sbtrain_jobs.process import CommandResult, run_command
from sbtrain_staging.errors import WorldError
from sbtrain_staging.reports.run_report import read_failed_code, read_report

pytestmark = [pytest.mark.slurm, pytest.mark.mpi]
NODES = 4


def srun_stage(
    environment: dict[str, str], folder: Path, source: Path, *, mpi: str
) -> CommandResult:
    (folder / "scratch").mkdir(exist_ok=True)
    srun = ["srun", "--partition=standard", f"--mpi={mpi}", f"--nodes={NODES}"]
    srun += ["--ntasks-per-node=1", "--kill-on-bad-exit=1"]
    stage = [sys.executable, "-m", "sbtrain_staging", "run", "--key", "run-1"]
    stage += ["--to", f"{folder}/scratch/%n", "--report", f"{folder}/stage.json", str(source)]
    return run_command(
        [*srun, *stage], timeout_s=120, env={**os.environ, **environment}, check="keep"
    )


def test_srun_starts_one_rank_a_node(slurm_environment: dict[str, str], tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    source = tmp_path / "data.h5"
    source.write_bytes(os.urandom(5_000_000))
    result = srun_stage(slurm_environment, tmp_path, source, mpi="pmi2")
    assert result.returncode == 0, result.stderr
    report = read_report(tmp_path / "stage.json")
    assert report.source_bytes_read == 5_000_000
    assert [node.node for node in report.nodes] == ["c1", "c2", "c3", "c4"]
    assert all(Path(n.paths[0]).read_bytes() == source.read_bytes() for n in report.nodes)


def test_ranks_that_never_meet_are_ended_by_the_kernel(
    slurm_environment: dict[str, str], tmp_path: Path
) -> None:
    """One rank stays away from MPI's start; the other must not wait for it for ever."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    late = tmp_path / "late.py"
    late.write_text(
        "import os, time\n"
        "import sbtrain_staging.ranks.world as world\n"
        "world.MEETING_LIMIT_S = 2\n"
        "if os.environ['SLURM_PROCID'] == '1':\n"
        "    time.sleep(300)\n"
        "import sbtrain_staging.ranks.mpi\n"
    )
    argv = ["srun", "--partition=standard", "--mpi=pmi2", "--nodes=2", "--ntasks-per-node=1"]
    argv += ["--kill-on-bad-exit=1", sys.executable, str(late)]
    result = run_command(
        argv, timeout_s=120, env={**os.environ, **slurm_environment}, check="keep"
    )
    assert "task 0: Alarm clock" in result.stderr


def test_srun_without_mpi_is_refused(slurm_environment: dict[str, str], tmp_path: Path) -> None:
    source = tmp_path / "data.h5"
    source.write_bytes(b"data")
    result = srun_stage(slurm_environment, tmp_path, source, mpi="none")
    # srun tells the greatest exit status: 143 of a rank that it ended before it could speak.
    assert result.returncode in (WorldError.exit_code, 128 + signal.SIGTERM)
    assert read_failed_code(tmp_path / "stage.json") == WorldError.exit_code
    assert "SLURM_STEP_NUM_TASKS says 4 ranks" in result.stderr
    assert "srun --mpi=pmi2" in result.stderr
    assert not list((tmp_path / "scratch").iterdir())
