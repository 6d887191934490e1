"""TensorFlow's part, run for real: the same steps however they are split, saves that fit,
servers that park and leave."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from local_trainers import LocalAttempt, local_plan
from preloaded import PreloadedParent
from sbtrain_jobs.process import end_session, start_process
from sbtrain_perf.codec import plan_to_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRAIN_LINE = Path(__file__).parents[2] / "fakes" / "train_line.py"

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, with_tensorflow: PreloadedParent) -> Path:
    """Checkpoints of the line, trained by one process with batches of 32."""
    folder = tmp_path_factory.mktemp("line") / "alone"
    done = with_tensorflow.run(TRAIN_LINE, str(folder), timeout_s=120)
    assert done.returncode == 0, done.stderr
    return folder


def weights(folder: Path) -> list[NDArray[np.float32]]:
    with np.load(folder / "step-30" / "state.npz") as stored:
        return [stored[name] for name in sorted(stored.files)]


def test_two_workers_take_the_steps_of_one_with_twice_the_batch(
    tmp_path: Path, alone: Path, with_tensorflow: PreloadedParent
) -> None:
    plan = local_plan(
        tmp_path, layout="allreduce", workers=2, servers=0, steps=30, data=tmp_path
    )
    plan = dataclasses.replace(plan, batch_per_worker=16)
    with LocalAttempt(
        plan=plan, number=0, script=TRAIN_LINE, script_args=["-"], parent=with_tensorflow
    ) as attempt:
        assert set(attempt.wait().values()) == {0}, attempt.log(0)
    pairs = zip(weights(Path(plan.checkpoint_dir)), weights(alone), strict=True)
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_two_devices_of_one_process_share_a_batch(
    tmp_path: Path, alone: Path, with_tensorflow: PreloadedParent
) -> None:
    environment = {**os.environ, "LINE_CPUS": "2"}
    done = with_tensorflow.run(TRAIN_LINE, str(tmp_path / "c"), env=environment, timeout_s=120)
    assert done.returncode == 0, done.stderr
    for ours, theirs in zip(weights(tmp_path / "c"), weights(alone), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_a_state_that_does_not_fit_is_refused(
    tmp_path: Path, alone: Path, with_tensorflow: PreloadedParent
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys; from pathlib import Path; from sbtrain_jobs import join\n"
        "with join(checkpoints=sys.argv[1], environ={}) as run:\n"
        "    import tensorflow as tf\n"
        "    cluster = run.tensorflow()\n"
        "    run.resume(lambda folder: cluster.load(folder, [tf.Variable([1.0, 2.0])]))\n"
    )
    done = with_tensorflow.run(script, str(alone), timeout_s=120)
    assert done.returncode == 20
    assert "holds 2 variables that do not fit the 1 of this script" in done.stderr
    assert "another checkpoint folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_thread_that_never_ends_does_not_keep_the_process(
    tmp_path: Path, with_tensorflow: PreloadedParent
) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, threading; from sbtrain_jobs import join\n"
        "from sbtrain_jobs.layouts import tensorflow as tf_roles\n"
        "tf_roles.EXIT_WITHIN_S = 0.5\n"
        "with join(default_steps=1, environ={}) as run:\n"
        "    run.tensorflow()\n"
        "    threading.Thread(target=threading.Event().wait).start()\n"
        "    print('done')\n"
        "    if sys.argv[1] == 'fail': raise ValueError('the script failed')\n"
    )
    for how, expected in (("end", 0), ("fail", 1)):
        done = with_tensorflow.run(script, how, timeout_s=60, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (expected, "done\n")


def test_a_parked_server_ends_with_its_agent(tmp_path: Path) -> None:
    plan = local_plan(tmp_path, layout="ps", workers=1, servers=1, steps=1, data=tmp_path)
    path = tmp_path / "plan.json"
    path.write_text(plan_to_json(plan))
    cluster = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], "ps": ["127.0.0.1:0"]}
    environment = {
        **os.environ,
        "SBTRAIN_PLAN": str(path),
        "SBTRAIN_ATTEMPT": "0",
        "SBTRAIN_ROLE": "ps",
        "SBTRAIN_ROLE_INDEX": "0",
        "SBTRAIN_RANK": "1",
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "ps", "index": 0}}),
    }
    agent = (
        "import subprocess, sys\n"
        "server = subprocess.Popen([sys.executable, '-c', 'from sbtrain_jobs import join; "
        'join(); print("came back")\'])\n'
        "open(sys.argv[1], 'w').write(str(server.pid))\n"
        "server.wait()\n"
    )
    pid_file = tmp_path / "pid"
    with (tmp_path / "log").open("wb") as log:
        process = start_process(
            [sys.executable, "-c", agent, str(pid_file)],
            env=environment,
            stdout=log,
            stderr=log,
        )
    try:
        pid = int(wait_for(lambda: pid_file.read_text() if pid_file.exists() else ""))
        term = 1 << (signal.SIGTERM - 1)
        wait_for(lambda: "parked" if term & caught_signals(pid) else "")
        os.kill(pid, signal.SIGTERM)  # not from its agent: Slurm's
        time.sleep(2.0)
        assert caught_signals(pid), (tmp_path / "log").read_text()
        process.kill()  # the agent alone
        process.wait()
        wait_for(lambda: "" if caught_signals(pid) else "gone")
        assert "came back" not in (tmp_path / "log").read_text()
    finally:
        end_session(process)


def caught_signals(pid: int) -> int:
    """The mask of signals that a process has a handler for; 0 when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return 0
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return 0 if fields["State"].split()[0] == "Z" else int(fields["SigCgt"], 16)


def wait_for(found: Callable[[], str], *, within_s: float = 60.0) -> str:
    end_s = time.monotonic() + within_s
    while not (value := found()):
        assert time.monotonic() < end_s, "did not happen"
        time.sleep(0.05)
    return value
