"""Scripts without a word on their layout run under one that they can take part in."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from commands import clean_environ, sbtrain

NUMPY = """\
import pathlib, time
import numpy as np
from sbtrain_jobs import join

with join() as run:
    start = run.resume(lambda folder: None)
    for step in run.steps(start=start, save=lambda f: (pathlib.Path(f) / "s").write_text("1")):
        np.dot(np.ones(10), np.ones(10))
        time.sleep(0.25)  # a step: the other rank begins before this one has saved the last
"""
SERVERS = """\
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id
    ).join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    steps = tf.Variable(0.0)


@tf.function
def step():
    steps.assign_add(1.0)


for _ in range(20):
    coordinator.schedule(step)
coordinator.join()
print("updates", int(steps.numpy()), flush=True)
"""


@pytest.mark.slurm
@pytest.mark.parametrize(
    ("text", "layout", "said"),
    [
        pytest.param(NUMPY, "allreduce", ("/20", "training is complete"), id="numpy"),
        pytest.param(
            SERVERS,
            "ps",
            ("updates 20", "the chief ended with exit status 0"),
            id="servers",
            marks=[
                pytest.mark.slow,
                pytest.mark.tensorflow,
                pytest.mark.skipif(
                    importlib.util.find_spec("tensorflow") is None,
                    reason="TensorFlow is not installed",
                ),
            ],
        ),
    ],
)
def test_a_script_runs_in_a_layout_of_its_own(
    text: str,
    layout: str,
    said: tuple[str, ...],
    tmp_path: Path,
    slurm_environment: dict[str, str],
) -> None:
    (tmp_path / "train.py").write_text(text)
    environ = clean_environ(**slurm_environment, SBTRAIN_HOME=str(tmp_path / "home"))
    words = ("--wait", "-p", "spot", "-N2-3", "-t", "5", "--train-steps=20", "train.py")
    done = sbtrain(*words, cwd=tmp_path, environ=environ)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / ".sbtrain/runs").iterdir()
    assert json.loads((folder / "plan.json").read_text())["layout"] == layout
    (output,) = tmp_path.glob("slurm-*.out")
    assert [words for words in said if words not in output.read_text()] == []
