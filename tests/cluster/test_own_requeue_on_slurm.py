"""Scripts that ask Slurm for their requeue themselves when they have saved, as Lightning and
submitit do, on a real Slurm: once, and the ledger knows why."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sbtrain.slurm.ending import way_back_of
from slurm_runs import SlurmRun, preemptor, slurm_run

pytestmark = pytest.mark.slurm

# Rank 0 saves, then requeues; the others train on until they are ended.
HANDLER = """\
import os, pathlib, signal, subprocess, time
saved = pathlib.Path(os.environ["SBTRAIN_RUN_DIR"], "own.ckpt")
rank, attempt = os.environ["SBTRAIN_RANK"], os.environ["SBTRAIN_ATTEMPT"]
asks = []
def save(*_):
    if rank == "0":
        saved.write_text(attempt)
        asks.append(subprocess.call(["scontrol", "requeue", os.environ["SLURM_JOB_ID"]]))
        print("asked", asks, flush=True)
signal.signal(signal.SIGUSR1, save)
print("resumes from", saved.read_text() if saved.exists() else "nothing", flush=True)
if attempt == "0" and rank == "0" and UNTOLD:
    time.sleep(3)
    save()
while attempt == "0":
    time.sleep(0.1)
"""
TRAP = """\
#!/bin/bash
saved=$SBTRAIN_RUN_DIR/own-$SBTRAIN_RANK
save() { sleep 1; echo $SBTRAIN_ATTEMPT > $saved; scontrol requeue $SLURM_JOB_ID; exit 0; }
trap save USR1
echo resumes from $(cat $saved 2> /dev/null || echo nothing)
while [[ $SBTRAIN_ATTEMPT == 0 ]]; do sleep 0.2 || :; done
"""
LIGHTNING = """
import os, time
import lightning as L
import torch
from torch import nn, utils
class Line(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)
    def on_train_start(self):
        print("resumes from", min(self.global_step, 1) - 1, flush=True)
    def training_step(self, batch, batch_idx):
        time.sleep(0.1 if os.environ["SBTRAIN_ATTEMPT"] == "0" else 0)
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)
rows = utils.data.DataLoader(utils.data.TensorDataset(torch.randn(8000, 64)), batch_size=8)
trainer = L.Trainer(accelerator="cpu", devices=1, num_nodes=2, max_steps=400, logger=False,
                    strategy="ddp", enable_progress_bar=False)
trainer.fit(Line(), rows)
"""


def started(
    folder: Path, environment: dict[str, str], runs: list[SlurmRun], script: str, *said: str
) -> SlurmRun:
    name = "train.sh" if script.startswith("#!") else "train.py"
    run = slurm_run(folder, environment, script, partition="spot", name=name, grace_s=15.0)
    runs.append(run)
    run.submit(*said, nodelist="g1,g2")
    run.wait_for(lambda: run.log("worker-0") and run.log("worker-1"), "both trainers")
    return run


def assert_requeued_once(run: SlurmRun, *, cause: str) -> None:
    run.wait_for_state("COMPLETED", "FAILED", within_s=90)
    assert run.state == "COMPLETED", run.output
    first, second = run.attempts
    assert (first.cause, first.exit_code, first.requeued) == (cause, 85, True)
    assert second.cause == "completed"
    assert run.shown("Restarts") == "1"
    assert "asks for a requeue" in run.output
    assert "nothing new saved" not in run.output
    assert "resumes from 0" in run.log("worker-0", attempt=1)


@pytest.mark.parametrize("script", [HANDLER.replace("UNTOLD", "False"), TRAP])
@pytest.mark.parametrize("signal", ["B:USR1@60", "USR1@60"])
def test_a_preempted_script_that_requeues_itself_comes_back_once(
    tmp_path: Path,
    slurm_environment: dict[str, str],
    runs: list[SlurmRun],
    signal: str,
    script: str,
) -> None:
    run = started(tmp_path, slurm_environment, runs, script, "--time=10", f"--signal={signal}")
    urgent = preemptor(run, "g1,g2")
    run.wait_for(lambda: len(run.attempts) == 2, "a second attempt", within_s=60)
    assert run.shown("StartTime", urgent) != "Unknown"
    assert_requeued_once(run, cause="preempted")


def test_near_the_time_limit_it_comes_back_once(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    script = HANDLER.replace("UNTOLD", "False")
    run = started(tmp_path, slurm_environment, runs, script, "--time=2", "--signal=B:USR1@60")
    run.wait_for(lambda: len(run.attempts) == 2, "a second attempt", within_s=130)
    assert_requeued_once(run, cause="time-limit")


def test_a_script_that_nobody_told_to_stop_may_ask_too(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    run = started(tmp_path, slurm_environment, runs, HANDLER.replace("UNTOLD", "True"))
    assert_requeued_once(run, cause="requeued")


def test_of_a_run_that_does_not_come_back_slurm_itself_is_asked(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    script = HANDLER.replace("UNTOLD", "True").replace(
        "save()\n", "save()\n    attempt = '1'\n"
    )
    run = slurm_run(tmp_path, slurm_environment, script, partition="spot", resumable=False)
    runs.append(run)
    run.submit("--time=10", nodelist="g1,g2")
    run.wait_for(lambda: "asked [1]" in run.log("worker-0"), "Slurm's refusal")
    assert "warning: worker 0 on node g1 asks for a requeue; say --requeue" in run.output


@pytest.mark.parametrize("resumable", [True, False])
def test_a_script_that_starts_its_ranks_itself_comes_back_as_often_as_with_sbatch(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun], *, resumable: bool
) -> None:
    """Whose handler it is, and whether sbtrain would have requeued it too."""
    environment = {**slurm_environment, "HANDLER": str(tmp_path / "handler.py")}
    text = HANDLER.replace("UNTOLD", "False").replace("SBTRAIN_RANK", "SLURM_PROCID")
    (tmp_path / "handler.py").write_text(text)
    run = slurm_run(
        tmp_path,
        environment,
        f"#!/bin/bash\nsrun {sys.executable} $HANDLER\n",
        **{"name": "run.sh", "launch": "script", "resumable": resumable, "partition": "spot"},
    )
    runs.append(run)
    options = ("--nodes=2", "--ntasks=2", "--time=10", "--requeue", "--open-mode=append")
    run.submit(*options, "--signal=USR1@60", nodelist="g1,g2")
    run.wait_for(lambda: run.output.count("resumes from nothing") == 2, "both ranks")
    # 24.11 starts a job that requeued itself while it was preempted once more when it has
    # completed, with sbatch too. Kept from that, it would end as PREEMPTED.
    twice = way_back_of(run.version) != "requeue" and run.version.year < 26
    preemptor(run, "g1,g2")
    run.wait_for(lambda: len(run.attempts) == 2 + twice, "the last attempt", within_s=60)
    run.wait_for_state("COMPLETED", "FAILED", within_s=90)
    assert run.state == "COMPLETED", run.output
    assert run.shown("Restarts") == ("2" if twice else "1"), run.output
    first, *others = run.attempts
    assert run.output.count("resumes from 0") == 2 * len(others)
    assert first.cause in ("preempted", "requeued")  # as Slurm, once it has acted, forgets why
    assert [one.cause for one in others] == ["completed"] * (1 + twice)


@pytest.mark.slow
@pytest.mark.frameworks
def test_lightning_comes_back_once_and_resumes_from_its_own_checkpoint(
    tmp_path: Path, slurm_environment: dict[str, str], runs: list[SlurmRun]
) -> None:
    pytest.importorskip("lightning")
    changes = {"framework": "torch", "grace_s": 15.0, "partition": "spot"}
    run = slurm_run(tmp_path, slurm_environment, LIGHTNING, **changes)
    runs.append(run)
    run.submit("--time=10", "--signal=B:USR1@60", nodelist="g1,g2")
    run.wait_for(lambda: "resumes from -1" in run.log("worker-0"), "steps", within_s=120)
    run.wait_for(lambda: "SLURM auto-requeueing" in run.log("worker-0"), "its handler")
    preemptor(run, "g1,g2")
    run.wait_for(lambda: len(run.attempts) == 2, "a second attempt", within_s=60)
    run.wait_for_state("COMPLETED", "FAILED", within_s=240)
    assert_requeued_once(run, cause="preempted")
    assert "the script saved" in run.output
