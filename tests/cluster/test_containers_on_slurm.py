"""Programs in containers, on a real Slurm. The runtime is played: as apptainer does, it runs
the command in the environment that it was called in, but for PATH, which is the image's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from counting_trainer import TRAIN
from slurm_runs import SlurmRun, preemptor, slurm_run

pytestmark = pytest.mark.slurm

APPTAINER = f"""\
#!/bin/bash
[[ "$1 $2 $3" == "exec --nv it.sif" ]] || exit 64
shift 3
export PATH={Path(sys.executable).parent}:/usr/bin:/bin APPTAINER_NAME=it.sif
exec "$@"
"""
IN_CONTAINER = "import os\nassert os.environ['APPTAINER_NAME'] == 'it.sif'\n" + TRAIN
INVOKED = "apptainer exec --nv it.sif python3 inner.py"


@pytest.mark.parametrize(
    ("launch", "line"), [("ranks", f"exec {INVOKED}"), ("script", f"srun {INVOKED}")]
)
def test_ranks_in_containers_join_are_preempted_and_resume(
    tmp_path: Path,
    slurm_environment: dict[str, str],
    runs: list[SlurmRun],
    launch: str,
    line: str,
) -> None:
    runtime = tmp_path / "bin" / "apptainer"
    runtime.parent.mkdir()
    runtime.write_text(APPTAINER)
    runtime.chmod(0o755)
    (tmp_path / "inner.py").write_text(IN_CONTAINER.replace("STEP_S", "0.05"))
    text = f"#!/bin/bash\ncd {tmp_path}\nexport PATH={runtime.parent}:$PATH\n{line}\n"
    run = slurm_run(
        tmp_path,
        slurm_environment,
        text,
        partition="spot",
        steps=150,
        name="train.sh",
        grace_s=15.0,
        launch=launch,
    )
    runs.append(run)
    run.submit("--nodes=2", "--ntasks=2", "--time=10", "--signal=B:USR1@60", nodelist="g1,g2")

    def said(attempt: int) -> str:
        logs = [run.log(f"worker-{rank}", attempt=attempt) for rank in (0, 1)]
        return run.output if launch == "script" else "".join(logs)

    for rank in (0, 1):
        begun = f"rank {rank} attempt 0 starts after step 0"
        run.wait_for(lambda: begun in said(0), begun)  # noqa: B023
    preemptor(run, "g1,g2")
    run.wait_for(lambda: len(run.attempts) == 2, "a second attempt", within_s=60)
    run.wait_for_state("COMPLETED", "FAILED", within_s=90)
    assert run.state == "COMPLETED", run.output
    first, second = run.attempts
    assert (first.cause, second.cause) == ("preempted", "completed")
    for rank in (0, 1):
        assert f"rank {rank} attempt 1 starts after step {first.saved_step}" in said(1)
