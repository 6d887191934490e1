"""Scripts that know nothing of us, as their framework's documentation writes them, under the
supervisor: what is seen of them, and how soon one whose ranks do not train together ends."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sbtrain_jobs.errors import LaunchError
from sbtrain_perf.timing_log import read_timing_log
from supervised_runs import SupervisedRun, supervised_run

MakeRun = Callable[..., SupervisedRun]
WITHIN_S = 60.0

DDP = """
import os, sys, time
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)
print("waits", flush=True)
MISTAKE
dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(1280, 10), torch.randn(1280, 5))
loader = DataLoader(data, batch_size=32, sampler=DistributedSampler(data), num_workers=1)
model = DistributedDataParallel(torch.nn.Linear(10, 5))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
began = time.perf_counter()
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
print("sum", float(sum(p.double().sum() for p in model.parameters())))
if dist.get_rank() == 0:
    torch.save(model.state_dict(), "model.pt")
dist.destroy_process_group()
"""


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[MakeRun]:
    runs: list[SupervisedRun] = []

    def make(script: str, **changes: object) -> SupervisedRun:
        run = supervised_run(tmp_path, script, **changes)
        runs.append(run)
        return run

    yield make
    for run in runs:
        run.stop()


def ends(run: SupervisedRun, *reason: str) -> None:
    """With the reason, in time from when the first rank is about to wait; never complete."""
    run.start()
    while "waits" not in run.output + run.log("worker-1"):
        time.sleep(0.05)
    began_s = time.monotonic()
    assert run.wait() == LaunchError.exit_code, run.output
    assert time.monotonic() - began_s < WITHIN_S
    for words in reason:
        assert words in run.output
    assert "complete" not in run.output
    assert run.last("ended").cause == "failed"


# -- PyTorch -----------------------------------------------------------------------------


@pytest.mark.slow
def test_ddp_is_seen_and_trains_as_ever(make_run: MakeRun) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    run = make_run(DDP.replace("MISTAKE", ""), framework="torch", steps_known=False)
    run.start()
    assert run.wait() == 0, run.output
    timings = read_timing_log(run.run_dir / "attempts/0/timings.h5")
    for ranks in timings.ranks:
        assert list(ranks.step) == list(range(2, 41))
        assert ranks.samples_per_step == 32
    (start, *_) = timings.named("start")
    assert (start.numbers["parameters"], start.numbers["tensors"]) == (55, 2)
    (saved,) = timings.named("checkpoint")
    assert saved.numbers["step"] == 40
    assert re.search(r"^sbtrain: step \d+$", run.output, re.M)
    (seen,) = re.findall(r"^sum .*", run.output, re.M)
    run.environ["SBTRAIN_HOOKS"] = "0"
    run.start(restart_count=1)
    assert run.wait() == 0, run.output
    assert re.findall(r"^sum .*", run.output, re.M) == [seen, seen]


OF_RANK_1 = "if os.environ['RANK'] == '1':\n    "
MISTAKES = {
    "late": (OF_RANK_1 + "time.sleep(600)", "did not come", "worker 1 on node c2", "runs"),
    "gone": (OF_RANK_1 + "sys.exit(0)", "did not come", "it ended with exit status 0"),
    "alone": ("os.environ.update(RANK='0', WORLD_SIZE='1')", "a world of 1 rank"),
    "twice": ("os.environ['RANK'] = '0'", "are both rank 0 of torch.distributed"),
    "apart": (OF_RANK_1 + "os.environ['MASTER_PORT'] = '1'", "in different places"),
    "nameless": ("os.environ['MASTER_ADDR'] = 'no.invalid'", "at no.invalid", "c1", "c2"),
}


@pytest.mark.slow
@pytest.mark.parametrize("mistake", MISTAKES)
def test_ddp_that_does_not_form_its_world_ends_in_time(mistake: str, make_run: MakeRun) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    done, *reason = MISTAKES[mistake]
    ends(make_run(DDP.replace("MISTAKE", done), framework="torch"), *reason)


@pytest.mark.slow
def test_steps_in_no_world_end_the_run(make_run: MakeRun) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    script = (
        "import torch\nprint('waits', flush=True)\nw = torch.nn.Parameter(torch.ones(1))\n"
        "o = torch.optim.SGD([w], lr=0.1)\n"
        "for _ in range(5):\n    w.grad = w * 2\n    o.step()\n"
    )
    ends(make_run(script, framework="torch"), "train alone: no world of the plan's 2 workers")


@pytest.mark.slow
def test_a_script_that_is_only_seen_is_told_of_a_preemption_by_signal(
    make_run: MakeRun,
) -> None:
    """Hooks cannot stop a script: no agreement is waited for."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    handler = (
        "import signal, sys, time\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))\n"
        "import torch\nw = torch.nn.Parameter(torch.ones(1))\n"
        "o = torch.optim.SGD([w], lr=0.1)\nwhile True:\n    w.grad = w * 2\n    o.step()\n"
        "    time.sleep(0.05)\n"
    )
    run = make_run(handler, steps_known=False, grace_s=90.0)
    run.start()
    run.wait_for(lambda: "sbtrain: step " in run.output)
    began_s = time.monotonic()
    run.say_cause("preempted")
    run.signal(signal.SIGUSR1)
    assert run.wait() == 85, run.output
    assert time.monotonic() - began_s < 60.0
    assert "stop after step" not in run.output


def test_two_lines_time_any_loop(make_run: MakeRun) -> None:
    page = Path(__file__).parents[3].joinpath("docs/watching.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.S)
    work = "import time\ndef train(step):\n    time.sleep(0.01)\n"
    run = make_run(work + example, steps=20)
    run.start()
    assert run.wait() == 0, run.output
    timings = read_timing_log(run.run_dir / "attempts/0/timings.h5")
    for rank in timings.ranks:
        assert list(rank.step) == list(range(1, 21))
        assert rank.seconds.min() > 0.01


# -- TensorFlow --------------------------------------------------------------------------


MIRRORED = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
print("waits", flush=True)
if "LEAVES" and os.environ["RANK"] == "1":
    sys.exit(0)
strategy = tf.distribute.MultiWorkerMirroredStrategy()
total = tf.function(lambda: strategy.run(
    lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0))))
print("sum", float(strategy.experimental_local_results(total())[0]))
"""


@pytest.mark.tensorflow
@pytest.mark.parametrize("leaves", ["", pytest.param("one", marks=pytest.mark.slow)])
def test_mirrored_workers(leaves: str, make_run: MakeRun) -> None:
    pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
    run = make_run(MIRRORED.replace("LEAVES", leaves), framework="tensorflow")
    if leaves:
        ends(run, "worker 1 on node c2 did not come to MultiWorkerMirroredStrategy")
        return
    run.start()
    assert run.wait() == 0, run.output
    assert "sum 2.0" in run.output
