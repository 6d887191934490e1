"""The digits example on a real Slurm under both layouts: preempted, requeued, resumed,
finished as accurate as without."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from sbtrain_jobs.process import run_command
from sbtrain_perf.request import DataSet, Layout, Role
from slurm_runs import SlurmRun, slurm_run

EXAMPLES = Path(__file__).parents[2] / "jobs" / "examples"
STEPS = 400

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.tensorflow,
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("tensorflow") is None, reason="TensorFlow is not installed"
    ),
]

ROLES: dict[Layout, tuple[Role, ...]] = {
    "allreduce": tuple(Role(name="worker", index=i, node=i) for i in range(2)),
    "ps": (
        Role(name="chief", index=0, node=0),
        Role(name="ps", index=0, node=0),
        Role(name="worker", index=0, node=1),
        Role(name="worker", index=1, node=2),
    ),
}


@pytest.mark.parametrize("layout", list(ROLES))
def test_digits_survive_a_preemption(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun], layout: Layout
) -> None:
    digits = tmp_path / "digits.h5"
    run_command([sys.executable, str(EXAMPLES / "digits_data.py"), str(digits)], timeout_s=120)
    roles = ROLES[layout]
    run = slurm_run(
        tmp_path,
        slurm_environment,
        (EXAMPLES / "train_digits.py").read_text(),
        layout=layout,
        roles=roles,
        nodes=roles[-1].node + 1,
        workers=2,
        servers=len([role for role in roles if role.name == "ps"]),
        steps=STEPS,
        partition="spot",
        grace_s=15.0,
        script_args=("--min-step-ms=50", f"--data={digits}"),
        data=DataSet(paths=()),
    )
    runs.append(run)
    nodes = ["g1", "g2", "g3"][: run.plan.nodes]
    run.submit(nodelist=",".join(nodes))
    chief = "chief-0" if layout == "ps" else "worker-0"
    run.wait_for(lambda: "step 50 of" in run.log(chief), "step 50", within_s=150)
    run.slurm(
        [
            *("sbatch", "--parsable", "--partition=urgent", "--exclusive", "--time=1"),
            *(f"--nodes={len(nodes)}", f"--nodelist={','.join(nodes)}", "--wrap=sleep 1"),
            f"--output={tmp_path}/urgent.out",
        ]
    )
    run.wait_for(lambda: len(run.attempts) > 1, "a second attempt", within_s=120)
    run.wait_for_state("COMPLETED", within_s=200)
    first, second = run.attempts
    assert (first.cause, first.exit_code, first.requeued) == ("preempted", 85, True)
    assert first.saved_step is not None
    assert 50 <= first.saved_step < STEPS
    assert (second.cause, second.exit_code) == ("completed", 0)
    assert run.saved_steps == [first.saved_step, STEPS]
    result = json.loads((Path(run.plan.run_dir) / "final" / "result.json").read_text())
    assert result["accuracy"] >= 0.95
