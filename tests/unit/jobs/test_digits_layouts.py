"""The digits example, run for real under both layouts as processes of this host: trained,
stopped at an agreed step, resumed, finished."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from local_trainers import LocalAttempt, local_plan
from preloaded import PreloadedParent
from sbtrain_jobs.process import end_session, run_command
from sbtrain_jobs.training.checkpoint import CheckpointStore
from sbtrain_jobs.wire.messages import EXIT_STOPPED
from sbtrain_perf.request import Layout

EXAMPLES = Path(__file__).parents[3] / "jobs" / "examples"
STEPS = 300

pytestmark = pytest.mark.tensorflow


@pytest.mark.parametrize(
    ("layout", "workers", "servers"),
    [("allreduce", 2, 0), ("ps", 2, 1)],
    ids=["allreduce", "ps"],
)
def test_trains_stops_resumes_and_finishes(
    tmp_path: Path,
    with_tensorflow: PreloadedParent,
    digits: Path,
    layout: Layout,
    workers: int,
    servers: int,
) -> None:
    plan = local_plan(
        tmp_path, layout=layout, workers=workers, servers=servers, steps=STEPS, data=digits
    )
    script = EXAMPLES / "train_digits.py"
    chief = 0

    start = functools.partial(LocalAttempt, plan=plan, script=script, parent=with_tensorflow)
    with start(number=0, script_args=["--min-step-ms=20"]) as first:
        first.watch_until_step(20)
        first.signal_as_slurm(signal.SIGUSR1)
        first.signal_as_slurm(signal.SIGTERM)
        first.ask_to_stop()
        codes = first.wait()
        assert list(first.end_parked(signal.SIGTERM).values()) == [0] * len(first.parked())
    assert set(codes.values()) == {EXIT_STOPPED}, first.log(chief)
    (saved,) = first.saved()
    assert 20 <= saved.step < STEPS
    assert first.state.agreed_step == saved.step
    newest = CheckpointStore(plan.checkpoint_dir).newest_valid()
    assert newest is not None
    assert (newest.step, str(newest.path)) == (saved.step, saved.path)
    for rank in codes:
        told = sorted(m.first for m in first.steps_done() if m.rank == rank)
        assert told[0] == 1
        ran = sum(len(m.seconds) for m in first.steps_done() if m.rank == rank)
        assert ran == saved.step

    with start(number=1) as second:
        codes = second.wait()
    assert set(codes.values()) == {0}, second.log(chief)
    assert {m.step for m in second.phases("restore")} == {saved.step}
    assert min(m.first for m in second.steps_done()) == saved.step + 1
    (evaluated,) = second.phases("evaluate")
    assert evaluated.parameters == 29066
    result = json.loads((Path(plan.run_dir) / "final" / "result.json").read_text())
    assert result == evaluated.metrics
    assert result["accuracy"] >= 0.95


@contextlib.contextmanager
def training_with_servers(
    folder: Path, digits: Path, parent: PreloadedParent
) -> Iterator[LocalAttempt]:
    """A chief, a server (rank 1) and two workers, after 50 of their steps."""
    plan = local_plan(folder, layout="ps", workers=2, servers=1, steps=STEPS, data=digits)
    script = EXAMPLES / "train_digits.py"
    quick = ["--min-step-ms=10"]
    with LocalAttempt(
        plan=plan, number=0, script=script, script_args=quick, parent=parent
    ) as attempt:
        attempt.watch_until_step(50)
        yield attempt


@pytest.mark.slow
def test_a_lost_worker_costs_no_update(
    tmp_path: Path, digits: Path, with_tensorflow: PreloadedParent
) -> None:
    with training_with_servers(tmp_path, digits, with_tensorflow) as attempt:
        attempt.processes[3].kill()
        assert attempt.wait() == {0: 0}, attempt.log(0)
        (evaluated,) = attempt.phases("evaluate")
    assert evaluated.step == STEPS
    assert evaluated.metrics["accuracy"] >= 0.95


@pytest.mark.slow
def test_a_lost_server_ends_the_run(
    tmp_path: Path, digits: Path, with_tensorflow: PreloadedParent
) -> None:
    with training_with_servers(tmp_path, digits, with_tensorflow) as attempt:
        attempt.processes[1].kill()
        assert attempt.wait() == {0: 1}
    assert "UnavailableError" in attempt.log(0)
    assert CheckpointStore(attempt.plan.checkpoint_dir).steps() == ()


def test_alone_it_stops_on_a_signal_resumes_and_finishes(
    tmp_path: Path, digits: Path, with_tensorflow: PreloadedParent
) -> None:
    log = tmp_path / "log"
    argv = (EXAMPLES / "train_digits.py", "--data", str(digits))
    environment = {k: v for k, v in os.environ.items() if not k.startswith("SBTRAIN_")}
    with log.open("wb") as stream:
        process = with_tensorflow.start(
            *(*argv, "--min-step-ms=20"),
            env=environment,
            cwd=tmp_path,
            output=stream.fileno(),
        )
    try:
        end_s = time.monotonic() + 100
        while "step 50 of 400" not in log.read_text() and process.poll() is None:
            assert time.monotonic() < end_s
            time.sleep(0.1)
        process.send_signal(signal.SIGUSR1)
        process.wait(timeout=30)
    finally:
        end_session(process)
    assert process.returncode == EXIT_STOPPED, log.read_text()
    (stopped,) = CheckpointStore(tmp_path / "checkpoints" / "train_digits").steps()
    assert 50 <= stopped < 400
    done = with_tensorflow.run(*argv, env=environment, cwd=tmp_path, timeout_s=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) >= 0.95
    assert CheckpointStore(tmp_path / "checkpoints" / "train_digits").steps() == (stopped, 400)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "digits.h5"
    run_command([sys.executable, str(EXAMPLES / "digits_data.py"), str(path)], timeout_s=120)
    return path
