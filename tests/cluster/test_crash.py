"""A node that dies on a real Slurm: the run resumes from its last periodic checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from counting_trainer import TRAIN
from sbtrain.cluster import crash_node, start_node
from sbtrain_jobs.hostlist import expand
from slurm_runs import slurm_run

pytestmark = pytest.mark.slurm


@pytest.mark.parametrize("victim", ["second", "first"])
def test_a_crashed_node_costs_the_steps_since_the_last_checkpoint(
    tmp_path: Path, slurm_environment: dict[str, str], slurm_folder: Path, victim: str
) -> None:
    """The first node takes the supervisor with it, the second leaves it behind."""
    run = slurm_run(
        tmp_path,
        slurm_environment,
        TRAIN,
        partition="standard",
        steps=100_000,
        checkpoint_interval_s=1.0,
    )
    crashed = "c1"
    try:
        run.submit()
        run.wait_for_steps()
        run.wait_for(lambda: run.saved_steps, "a periodic checkpoint")
        crashed = expand(run.shown("NodeList"))[0 if victim == "first" else 1]
        crash_node(slurm_folder, crashed)
        run.wait_for(lambda: len(run.attempts) == 2, "a second attempt", within_s=100)
        saved = run.saved_steps[-1]  # the survivor may have saved once more
        run.wait_for_steps(attempt=1)
    finally:
        start_node(slurm_folder, crashed)
        run.cancel()
    first, _ = run.attempts
    assert first.cause == "node-fail"
    assert not first.requeued  # Slurm did it
    assert run.shown("Restarts") == "1"
    for rank in (0, 1):
        log = run.log(f"worker-{rank}", attempt=1)
        assert f"rank {rank} attempt 1 starts after step {saved}" in log
