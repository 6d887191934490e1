"""Staging under a real srun: one rank a node, and a launch that is not MPI's is refused."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from sbtrain_jobs.process import CommandResult, run_command
from sbtrain_jobs.run_folder import AttemptFolder
from sbtrain_jobs.supervisor.staging_step import may_succeed_again, why_failed
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
    assert not (tmp_path / "stage-meeting").exists()


# Staging with one rank that goes astray: argv[1] says where, argv[2] is the rank.
ASTRAY = """
import os, signal, sys, time
from sbtrain_staging.ranks import meeting
where, rank = sys.argv[1:3]
meeting.MEETING_LIMIT_S = 30
usual = meeting.come
def come(report, node):
    if os.environ["SLURM_PROCID"] == rank and where == "before":
        time.sleep(300)
    usual(report, node)
    if os.environ["SLURM_PROCID"] == rank and where == "after":
        os.kill(os.getpid(), signal.SIGSTOP)
meeting.come = come
from sbtrain_staging.commandline import main
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_rank_that_never_meets_the_others_is_named(
    slurm_environment: dict[str, str], tmp_path: Path, where: str
) -> None:
    """It stays away, or stands still, stopped; the others must not wait for ever."""
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    program = tmp_path / "astray.py"
    program.write_text(ASTRAY)
    (tmp_path / "scratch").mkdir()
    argv = ["srun", "--partition=standard", "--mpi=pmi2", "--nodes=3", "--ntasks-per-node=1"]
    argv += ["--kill-on-bad-exit=1", sys.executable, str(program), where, "1", "run"]
    argv += ["--key", "k", "--to", f"{tmp_path}/scratch/%n"]
    argv += ["--report", f"{tmp_path}/stage.json", str(program)]
    result = run_command(
        argv, timeout_s=120, env={**os.environ, **slurm_environment}, check="keep"
    )
    assert "Alarm clock" in result.stderr
    nodes = ("c1", "c2", "c3")
    attempt = AttemptFolder(path=tmp_path)
    code, said = why_failed(attempt, returncode=result.returncode, nodes=nodes)
    assert code == WorldError.exit_code
    assert "did not meet within" in said
    assert ": c2 did not come" in said
    assert not may_succeed_again(attempt, returncode=result.returncode)


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
